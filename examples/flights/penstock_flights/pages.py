"""The departure board: static files that follow the demo's flights through ``penstock.js``, which every server serves."""

from importlib import resources
from typing import Final

from penstock_cdc import Page

__all__ = ["board_pages"]

_FILES: Final = (
    "board.css",
    "board.js",
    "clock.js",
    "controls.js",
    "drawing.js",
    "flaps.js",
    "flights.js",
    "help.html",
    "names.js",
    "rows.js",
    "statistics.js",
)


def board_pages() -> dict[str, Page]:
    """The files of the board by URL path; the board itself is ``/``."""
    place = resources.files("penstock_flights").joinpath("board")
    files = {f"/board/{name}": Page.read(place.joinpath(name)) for name in _FILES}
    return {"/": Page.read(place.joinpath("index.html")), **files}
