"""Lossless JSON: how values are written, and how a schema restores their types.

* `writing`: by which rule each value becomes JSON, or the text of a key.
* `reading`: which values each type reads, and which it refuses, as it would change them.
* `plain`: the same for most values, from the text at once.
"""

from publishers.lossless.reading import Reader, mistakable, reader
from publishers.lossless.writing import (
    NUMBER,
    NotFinite,
    encodable,
    encode,
    flaw_of,
    key_text,
    text_integers,
)

__all__ = [
    "NUMBER",
    "NotFinite",
    "Reader",
    "encodable",
    "encode",
    "flaw_of",
    "key_text",
    "mistakable",
    "reader",
    "text_integers",
]
