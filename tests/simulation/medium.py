"""What the simulated disk is made of: files with two states, and the ways in which a pending change fares."""

import random
from dataclasses import dataclass, field
from typing import Any

SECTOR = 512


@dataclass(eq=False)
class Inode:
    current: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data) or (size, None)
    locked_by: Any = None
    mapped: bool = False


def apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset < len(content):
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def rename(names: dict[str, Inode], what: str, name: str, inode: Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
        return
    if what.startswith("move "):
        names.pop(what[5:], None)
    names[name] = inode


def tear(rng: random.Random, durable: bytearray, offset: int, data: bytes) -> None:
    end = offset + len(data)
    start = offset
    while start < end:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        piece = data[start - offset : stop - offset]
        roll = rng.random()
        if roll < 0.60:
            apply(durable, start, piece)
        elif roll < 0.75:
            if stop > len(durable):
                durable.extend(bytes(stop - len(durable)))
        elif roll < 0.80:
            apply(durable, start, piece[: rng.randrange(len(piece) + 1)])
        start = stop
