"""Globs over the bytes of a key: ``*`` for any number of bytes, ``?`` for exactly one.

Matching takes time proportional to key times pattern at worst, and never more (the greedy algorithm with one point of
return; a later ``*`` makes the earlier ones irrelevant), so a hostile pattern costs little.
"""

import re
from collections.abc import Callable
from typing import Final

__all__ = ["glob_gram", "glob_head", "glob_matcher"]

_WILD: Final = re.compile(rb"[*?]")
_GRAM: Final = 4


def glob_matcher(pattern: str) -> Callable[[bytes], bool]:
    """Compiles a glob."""
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
    return lambda key: _glob(glob, key)


def glob_head(pattern: str) -> tuple[bytes, bool]:
    """What every matching key begins with, and whether every key that begins so matches."""
    glob = pattern.encode("utf-8", "surrogateescape")
    head = _WILD.split(glob, maxsplit=1)[0]
    rest = glob[len(head) :]
    return head, bool(rest) and rest.count(b"*") == len(rest)


def glob_gram(pattern: str) -> bytes:
    """Some bytes that every matching key has in it, as many as a gram takes; empty if there are none."""
    glob = pattern.encode("utf-8", "surrogateescape")
    return max(_WILD.split(glob), key=len)[:_GRAM]


def _glob(glob: bytes, key: bytes) -> bool:
    at = 0  # in the key
    place = 0  # in the pattern
    star = -1  # the last star, and where in the key it stops matching
    resume = 0
    while at < len(key):
        wanted = glob[place] if place < len(glob) else -1
        if wanted == 0x2A:
            star, resume = place, at
            place += 1
        elif wanted in (0x3F, key[at]):
            place += 1
            at += 1
        elif star >= 0:
            resume += 1
            place, at = star + 1, resume
        else:
            return False
    return glob[place:].count(b"*") == len(glob) - place
