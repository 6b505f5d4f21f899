"""Pages in headless Chromium, driven by Playwright; `make browser` installs both."""
