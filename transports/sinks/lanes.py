"""Several concurrent requests of one sink: a batch is divided among lanes, each of which keeps its order."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from typing import Literal, NamedTuple
from zlib import crc32

from publishers.model.change import Area, Change
from transports.sinks.errors import TooLargeForTarget, plain_error
from transports.sinks.sink import ItemResult, ItemVerdict, Sink, SinkBatch

__all__ = ["LaneOutcome", "SinkLanes", "SinkOrdering"]

SinkOrdering = Literal["log", "key", "none"]
"""Which changes arrive in order: all of them, those of each key, or none."""


class LaneOutcome(NamedTuple):
    """The outcome of a batch.

    Attributes:
        results: The results of single changes that were not accepted.
        left: The places of changes that were not sent, each with the error of its lane; None if it waits for a change before it that
            was not accepted.
    """

    results: list[ItemResult]
    left: dict[int, Exception | None]


_Piece = list[tuple[int, Change]]  # changes with their places in the batch


class SinkLanes:
    """Writes batches on several threads. It returns when all requests of a batch are answered.

    With order by key, changes of one key are in one lane, and a change without a key (TRUNCATE, schemas) is sent alone, between the
    changes before and after it. A lane sends pieces of at most ``most`` changes, one after the other, and stops at the first that
    fails. The same changes make the same pieces, so a repeated attempt has the same ids.

    Args:
        sink: The sink, whose ``write`` several threads call.
        lanes: The number of lanes.
        ordering: ``key`` or ``none``.
        most: The most changes of one request.
    """

    def __init__(self, sink: Sink, lanes: int, ordering: SinkOrdering, most: int) -> None:
        self._sink, self._lanes, self._by_key, self._most = sink, lanes, ordering == "key", most
        self._threads = ThreadPoolExecutor(lanes, "penstock-sink-lane")

    def write(self, batch: SinkBatch) -> LaneOutcome:
        """Writes a batch; errors are part of the outcome."""
        outcome = LaneOutcome([], {})
        for group in self._groups(list(enumerate(batch.changes))):
            if self._by_key and (outcome.left or outcome.results):
                waiting = [place for pieces in group for piece in pieces for place, _ in piece]
                outcome.left.update(dict.fromkeys(waiting))
                continue
            running = [self._threads.submit(self._lane, batch, pieces) for pieces in group]
            for one in running:
                done = one.result()
                outcome.results.extend(done.results)
                outcome.left.update(done.left)
        outcome.results.sort(key=lambda one: one.place)
        return outcome

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()

    def _groups(self, changes: _Piece) -> Iterator[list[list[_Piece]]]:
        """Yields the groups of pieces that may be sent concurrently, as a list of pieces for each lane."""
        if not self._by_key:
            pieces = _pieces(changes, self._most)
            yield [pieces[lane :: self._lanes] for lane in range(min(self._lanes, len(pieces)))]
            return
        for alone, run in groupby(changes, key=lambda one: _stands_alone(one[1])):
            if alone:
                yield from ([[[one]]] for one in run)
                continue
            lanes: dict[int, _Piece] = {}
            for place, change in run:
                lanes.setdefault(crc32(_key(change)) % self._lanes, []).append((place, change))
            yield [_pieces(lane, self._most) for lane in lanes.values()]

    def _lane(self, batch: SinkBatch, pieces: Sequence[_Piece]) -> LaneOutcome:
        outcome = LaneOutcome([], {})
        waiting = list(reversed(pieces))
        while waiting:
            piece = waiting.pop()
            try:
                outcome.results.extend(self._write(batch, piece))
            except TooLargeForTarget as error:
                if len(piece) > 1:
                    middle = len(piece) // 2
                    waiting += [piece[middle:], piece[:middle]]
                else:
                    outcome.results.append(ItemResult(piece[0][0], ItemVerdict.REJECT, error.why))
            except BaseException as caught:  # noqa: BLE001 - the caller raises it
                reason = plain_error(caught)
                outcome.left.update((place, reason) for one in (piece, *waiting) for place, _ in one)
                break
            if self._by_key and outcome.results:
                outcome.left.update((place, None) for one in waiting for place, _ in one)
                break
        return outcome

    def _write(self, batch: SinkBatch, piece: _Piece) -> Iterator[ItemResult]:
        places, changes = zip(*piece, strict=True)
        sent = replace(
            batch,
            changes=changes,
            next=changes[-1].after,
            boundary=False,
            gap=batch.gap if places[0] == 0 else None,
        )
        for one in self._sink.write(sent) or ():
            yield one._replace(place=places[one.place])


def _pieces(changes: _Piece, most: int) -> list[_Piece]:
    return [changes[begin : begin + most] for begin in range(0, len(changes), most)]


def _stands_alone(change: Change) -> bool:
    return change.key is None and change.area is not Area.INFRASTRUCTURE


def _key(change: Change) -> bytes:
    return f"{change.entity_type}\0{change.key}".encode("utf-8", "surrogateescape")
