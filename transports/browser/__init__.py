"""What a server sends to browsers: the client ``penstock.js``, and a page with links to what else there is."""

from transports.browser.pages import Page, find_own

__all__ = ["Page", "find_own"]
