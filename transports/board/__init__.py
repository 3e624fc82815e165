"""The departure board: static files, served as they are, that follow the demo's flights through our own protocol.

``penstock.js`` beside them is the beginning of a client for JavaScript; nothing in it knows of flights.
"""

from transports.board.pages import Page, find_page

__all__ = ["Page", "find_page"]
