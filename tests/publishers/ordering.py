"""Writers whose order can be told from what they wrote, and a checker of what subscribers saw.

Every update carries three numbers: which update it is of its key, of its partition, and of its writer. The first two are
drawn and committed under one lock each, as rows and shards of a database are locked, so that the order is not a matter of
opinion; writers run beside each other as far as these locks allow.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from publishers import ChangeLog, Content, Position, upsert
from tests.publishers.support import chance, in_threads

KEYS = 24
PARTITIONS = 4
WRITERS = 4


class Writers:
    """Some threads that commit transactions of one to three updates.

    Attributes:
        log: Where they write.
        rounds: Transactions of each writer.
    """

    def __init__(self, log: ChangeLog, rounds: int, seed: int = 0) -> None:
        self.log = log
        self.rounds = rounds
        self.seed = seed
        self.by_partition: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
        for number in range(KEYS):
            key = f"key{number}"
            self.by_partition[_partition(key)].append(key)
        assert all(self.by_partition.values()), "each partition has some keys"
        self.locks = [threading.Lock() for _ in range(PARTITIONS)]
        self.of_key: Counter[str] = Counter()
        self.of_partition: Counter[int] = Counter()

    def run(self) -> None:
        in_threads(*[lambda writer=writer: self.write(writer) for writer in range(WRITERS)])

    def write(self, writer: int) -> None:
        draw = chance(self.seed * WRITERS + writer)
        for number in range(1, self.rounds + 1):
            partition = draw.randrange(PARTITIONS)
            with self.locks[partition]:
                rows = [
                    self.update(draw.choice(self.by_partition[partition]), partition, writer, number)
                    for _ in range(draw.choice([1, 1, 2, 3]))
                ]
                self.log.commit(rows)

    def update(self, key: str, partition: int, writer: int, number: int) -> Any:
        self.of_key[key] += 1
        self.of_partition[partition] += 1
        body = {
            "ofKey": self.of_key[key],
            "ofPartition": self.of_partition[partition],
            "writer": writer,
            "ofWriter": number,
        }
        return upsert("row", key, body)


def _partition(key: str) -> int:
    """As the documentation of ``Change.partition`` says, for programs in any language."""
    return crc32(key.encode()) % PARTITIONS


class Checker:
    """Judges the order of what one subscriber saw; attributes count what it has judged."""

    def __init__(self) -> None:
        self.of_key: dict[str, int] = {}
        self.of_partition: dict[int, int] = {}
        self.of_writer: dict[int, int] = {}
        self.positions: list[Position] = []

    def look(self, changes: Iterable[Any], *, whole: bool = True) -> "Checker":
        """Goes through the updates, in the order in which they came.

        Args:
            changes: With bodies.
            whole: Whether all keys were asked for; else the numbers of partitions have gaps, but rise.
        """
        for change in changes:
            self.positions.append(Position(change.version, change.index))
            if change.key is None:
                continue
            body, partition = change.body, _partition(change.key)
            before = self.of_key.get(change.key, 0)
            assert body["ofKey"] == before + 1, (
                f"F25: {change.key} at {self.positions[-1]} is update {body['ofKey']}, after {before}"
            )
            self.of_key[change.key] = body["ofKey"]
            before = self.of_partition.get(partition, 0)
            assert body["ofPartition"] == before + 1 or (not whole and body["ofPartition"] > before), (
                f"F26: update {body['ofPartition']} of partition {partition} after {before}"
            )
            self.of_partition[partition] = body["ofPartition"]
            assert body["ofWriter"] >= self.of_writer.get(body["writer"], 0)
            self.of_writer[body["writer"]] = body["ofWriter"]
        assert all(one < other for one, other in zip(self.positions, self.positions[1:], strict=False)), (
            "F27: positions do not rise"
        )
        return self

    def agrees(self, writers: Writers) -> None:
        """Everything that was written was seen."""
        assert self.of_key == writers.of_key
        assert self.of_partition == {number: count for number, count in writers.of_partition.items() if count}


def stored(log: ChangeLog) -> list[Position]:
    """The total order, straight from the disk."""
    return [change.position for change in log.history(limit=1_000_000, content=Content.HEADER).changes]
