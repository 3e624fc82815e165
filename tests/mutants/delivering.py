"""Mutants of what is delivered: rings, cursors, who is notified, detached publishers."""

from tests.mutants.patching import Mutant

__all__ = ["DELIVERING"]

_PARTS = "publishers.fanout.chunk:"
_RING = "publishers.fanout.ring:Ring."
_WORLD = ("world",)
_BOTH = ("world", "threads")

_READING = [
    Mutant(
        "cursor off by one",
        _PARTS + "polled_from",
        "place += 1\n        after = tuple.__new__(Position, (chunk.version + 1, 0))",
        "place += 1\n        after = tuple.__new__(Position, (chunk.version + 2, 0))",
        _WORLD,
    ),
    Mutant(
        "index off by one",
        _PARTS + "polled_from",
        "pieces[-1].indices[-1] + 1",
        "pieces[-1].indices[-1]",
        _WORLD,
    ),
    Mutant(
        "replayed index off by one",
        "publishers.fanout.cursor:Cursor.take",
        "piece.indices[-1] + 1",
        "piece.indices[-1] + 2",
        _WORLD,
    ),
    Mutant(
        "until off by one",
        "publishers.fanout.cursor:Cursor.upto",
        "min(visible, self.until)",
        "min(visible, self.until + 1)",
        _WORLD,
    ),
    Mutant(
        "end one too early",
        "publishers.fanout.cursor:Cursor.finished",
        "self.next.version > self.until",
        "self.next.version >= self.until",
        _WORLD,
    ),
    Mutant(
        "beyond the watermark",
        "publishers.fanout.cursor:Cursor.poll",
        "self.upto, max_events",
        "self.upto + 1, max_events",
        _BOTH,
    ),
    Mutant(
        "eviction forgets to mark",
        _RING + "_overtake",
        "self._move(cursor, Occurrence.EVICT, max(cursor.next, resume))",
        "pass",
        _WORLD,
    ),
    Mutant(
        "overtaken go on too late",
        _RING + "_overtake",
        "resume = min(resume, Position(visible + 1, 0))",
        "resume = Position(visible + 2, 0)",
        _WORLD,
    ),
    Mutant(
        "ring start not moved",
        _RING + "_drop_oldest",
        "self.start = tuple.__new__(Position, (self._chunks[0].version + 1, 0))",
        "pass",
        _WORLD,
    ),
    Mutant(
        "bounds of the ring forgotten",
        _RING + "link",
        "while self._events + events",
        "while False and self._events + events",
        _WORLD,
    ),
    Mutant(
        "too large a chunk does not restart the ring",
        _RING + "link",
        "return self._restart(chunk.version, visible)",
        "return []",
        _WORLD,
    ),
    Mutant(
        "trimmed before it was taken",
        _RING + "_trim",
        "self._chunks and self._chunks[0].place not in self._standing",
        "self._chunks",
        _WORLD,
    ),
    Mutant(
        "checkpoint ahead of what was delivered",
        "publishers.fanout.subscription:ChangeSubscription.checkpoint",
        "cursor.phase is not _JOINING and self._filled is None",
        "True",
        _WORLD,
    ),
    Mutant(
        "the rest of a frame holds wherever its cursor is",
        "publishers.fanout.resync_slice:ResyncReader.next",
        "rest.next is cursor.next and ",
        "",
        _WORLD,
    ),
    Mutant(
        "demand not subtracted",
        "flow.drain.drain:Drain._hand",
        "self.given += len(items)",
        "pass",
        _WORLD,
    ),
]

_TELLING = [
    Mutant(
        "wake read before the advance",
        "publishers.fanout.publish_gate:PublishGate.publish",
        "    service.watermark.advance(newest)\n    self._halfway = False\n    if touched or overtaken or not service.waiting.empty:\n"
        "        return self._concerned(touched, overtaken)\n    return []",
        "    found = self._concerned(touched, overtaken)\n    service.watermark.advance(newest)\n    self._halfway = False\n    return found",
        ("threads", "world"),
        12_000,
    ),
    Mutant(
        "watermark advanced before the rings",
        "publishers.fanout.publish_gate:PublishGate.publish",
        "visible = service.watermark.visible",
        "visible = service.watermark.visible\n    service.watermark.advance(newest)",
        ("threads", "world"),
        12_000,
    ),
    Mutant(
        "rings not restarted behind a large transaction",
        "publishers.fanout.publish_gate:PublishGate.publish",
        "overtaken += shared.ring.restart(version, visible)",
        "pass",
        _WORLD,
    ),
    Mutant(
        "those who are parked not told",
        "publishers.fanout.waiting_list:WaitingList.due",
        "*parked, ",
        "",
        _BOTH,
    ),
    Mutant(
        "publisher not matched",
        "publishers.fanout.registry:Registry.snapshot",
        "self._refresh()",
        "None",
        _BOTH,
    ),
    Mutant(
        "publisher leaves with the first",
        "publishers.fanout.registry:Registry.remove",
        "if not shared.subscriptions:",
        "if True:",
        _WORLD,
    ),
    Mutant(
        "withheld ones shown with the others",
        "publishers.commits.withheld:Withheld.reach",
        "return max(version, first - 1)",
        "return newest",
        ("machine",),
    ),
    Mutant(
        "withheld ones that were not kept are skipped",
        "publishers.commits.withheld:Withheld.take",
        "taken.append(Published(self._unkept, self._unkept_changes or 0, None))",
        "pass",
        ("machine",),
    ),
]

_DETACHING = [
    Mutant(
        "a detached ring still covers what it held",
        _RING + "detach",
        "self.start = NOWHERE",
        "pass",
        ("detaching",),
        60,
    ),
    Mutant(
        "live cursors not told that their ring is detached",
        _RING + "detach",
        "self._restart(visible + 1, visible)",
        "[]",
        ("detaching",),
        60,
    ),
    Mutant(
        "an attached ring covers what was never linked",
        "publishers.fanout.registry:Registry.snapshot",
        "Position(self._matched_through + 1, 0)",
        "Position(1, 0)",
        ("detaching",),
        60,
    ),
    Mutant(
        "those of detached publishers not told of an advance",
        "publishers.fanout.waiting_list:WaitingList.due",
        "self._enlist(replayer)",
        "pass",
        ("detaching",),
        60,
    ),
]

DELIVERING = (*_READING, *_TELLING, *_DETACHING)
