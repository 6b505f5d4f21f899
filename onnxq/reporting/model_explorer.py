def write_model_explorer(c, f): raise NotImplementedError
