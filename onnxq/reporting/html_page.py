def html_page(c): raise NotImplementedError
