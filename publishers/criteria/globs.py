"""Globs over the bytes of a key: ``*`` for any number of bytes, ``?`` for exactly one.

Matching takes one step for each byte of the key, whatever the glob: the set of places in the glob that a match may have reached
is one integer, and a step is a lookup, an ``&`` and a shift (Shift-And, Baeza-Yates and Gonnet, 1992).
"""

import re
from collections.abc import Callable
from typing import Final

__all__ = ["glob_gram", "glob_head", "glob_matcher", "glob_tail"]

_WILD: Final = re.compile(rb"[*?]")
_GRAM: Final = 4
_STAR: Final = 0x2A
_ANY: Final = 0x3F


def glob_matcher(pattern: str) -> Callable[[bytes], bool]:
    """Compiles a glob into a function that tests a key."""
    glob = pattern.encode("utf-8", "surrogateescape")
    stars = glob.count(b"*")
    if b"?" not in glob:
        if not stars:
            return glob.__eq__
        if stars == 1:
            head, tail = glob.split(b"*")
            if not head:
                return lambda key: key.endswith(tail)
            if not tail:
                return lambda key: key.startswith(head)
            least = len(head) + len(tail)
            return lambda key: len(key) >= least and key.startswith(head) and key.endswith(tail)
    return _shift_and(glob)


def glob_head(pattern: str) -> tuple[bytes, bool]:
    """Returns the prefix of every matching key, and whether every key with that prefix matches."""
    glob = pattern.encode("utf-8", "surrogateescape")
    head = _WILD.split(glob, maxsplit=1)[0]
    return head, _stars(glob[len(head) :])


def glob_tail(pattern: str) -> tuple[bytes, bool]:
    """Returns the suffix of every matching key, and whether every key with that suffix matches."""
    glob = pattern.encode("utf-8", "surrogateescape")
    tail = _WILD.split(glob)[-1]
    return tail, _stars(glob[: len(glob) - len(tail)])


def _stars(rest: bytes) -> bool:
    return bool(rest) and rest.count(b"*") == len(rest)


def glob_gram(pattern: str) -> bytes:
    """Returns bytes that every matching key contains, at most as many as a gram has; empty if there are none."""
    glob = pattern.encode("utf-8", "surrogateescape")
    return max(_WILD.split(glob), key=len)[:_GRAM]


def _shift_and(glob: bytes) -> Callable[[bytes], bool]:
    """Builds the automaton of a glob: bit n means that its first n bytes, stars not counted, have matched."""
    stars = wild = size = 0
    takers: dict[int, int] = {}
    for byte in glob:
        if byte == _STAR:
            stars |= 1 << size
            continue
        if byte == _ANY:
            wild |= 1 << size
        else:
            takers[byte] = takers.get(byte, 0) | 1 << size
        size += 1
    takes = {byte: places | wild for byte, places in takers.items()}.get
    final = 1 << size

    def matches(key: bytes) -> bool:
        places = 1
        for byte in key:
            places = (places & takes(byte, wild)) << 1 | places & stars
            if not places:
                return False
        return bool(places & final)

    return matches
