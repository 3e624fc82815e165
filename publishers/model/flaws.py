"""Flaws of what should be JSON."""

from typing import Final

import msgspec

__all__ = ["flaw_of"]

_raw: Final = msgspec.json.Decoder(msgspec.Raw)


def flaw_of(data: bytes) -> str | None:
    """Returns why bytes are not JSON in UTF-8; None if they are."""
    try:
        _raw.decode(data)
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return str(error)
    return None
