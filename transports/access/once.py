"""Lines in the log about what only the operator can change."""

import logging
from typing import Final

__all__ = ["Once"]

_LOG: Final = logging.getLogger("penstock.transports")
_MOST: Final = 100


class Once:
    """Logs each text once, and at most 100 of them, because clients choose what is in them."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, text: str) -> str:
        """Logs the text, if it is new; returns it."""
        if text not in self._said and len(self._said) < _MOST:
            self._said.add(text)
            _LOG.warning("%s", text)
        return text
