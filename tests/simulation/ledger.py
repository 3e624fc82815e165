"""A log under a fixed workload, beside a ledger of what was given to it and what it has answered.

`Life` drives the log and keeps the ledger; `Ledger.check` opens what a crash, a fault or a damage has left and compares.
It promises less than the random lives of `workload` draw, but it is the same for T2 and T5: nothing acknowledged lost,
nothing that was not given found, nothing withheld shown, nothing forgotten come back, schemas and links as they were.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec

from publishers.errors import LogFull
from publishers.model.position import Position
from publishers.options import LogOptions
from publishers.schemas.registry import RecordedSchema, Schemas
from publishers.wal import Follower, Reader, Wal, seal_transaction
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG, PRODUCERS, Clock, Given, columns_of

__all__ = ["OPTIONS", "Ledger", "Life", "contents", "schemas_of"]

DATA, SCHEMA = 0x11, 0x21
CONSUMER = "foreign"
OPTIONS = LogOptions(
    segment_bytes=65536,
    segment_age=5.0,
    frame_bytes=1024,
    spool_bytes=4000,
    fill_step=0,
    head_sync=0.0,
    retain_bytes=None,
    retain_age=None,
)

Version = tuple[list[tuple[int, bytes | None, bytes | None]], bytes, UUID | None, int]


def contents(reader: Reader, start: int | None = None) -> dict[int, Version]:
    """Every version from ``start`` (or the oldest) on: its changes, annotations, producer and sequence."""
    location = reader.locate(start or reader.oldest)
    found: dict[int, Version] = {}
    while (frame := reader.read(location)) is not None:
        header, columns = frame.header, frame.columns
        if header.flags & 1:
            producer = UUID(bytes=header.producer) if any(header.producer) else None
            found[header.version] = ([], frame.annotations, producer, header.producer_sequence)
        changes, annotations, _, _ = found[header.version]
        assert header.first_index == len(changes) + 1
        bodies = columns.body or repeat(None, header.count)
        changes += zip(columns.kinds.tolist(), columns.key, bodies, strict=True)
        assert frame.annotations in (annotations, b""), (
            "each frame has those of the transaction, or none in earlier logs"
        )
        location = frame.next
    return found


class _Schemas(Schemas):
    """The schemas of a log whose schema changes are those that `Life.tell` commits."""

    def _replay(self, _reader: Reader, version: int) -> Iterator[Any]:
        for found, (changes, *_) in contents(self._files.reader).items():
            for index, (kind, key, body) in enumerate(changes, 1):
                if kind == SCHEMA and found >= version:
                    yield SimpleNamespace(
                        entity_type="Product",
                        key=(key or b"").decode(),
                        schema_version=json.loads(body or b"")["v"],
                        position=Position(found, index),
                        body_bytes=body,
                    )

    def _visible(self) -> int:
        return 2**63


def schemas_of(system: Any, wal: Wal) -> Schemas:
    """The schemas of such a log."""
    return _Schemas(wal, system)


@dataclass
class Ledger:
    """What may be found.

    Attributes:
        given: Every version that was appended last under that number, acknowledged or not.
        acknowledged: Newest version whose sync returned.
        epoch: Of the last life.
        lines: Above which version everything is withheld, None if nothing is; two while one becomes the other.
        cut: While a forgetting is in progress: the version that it keeps, and the newest one before.
        floor: Retention may have deleted up to here, exclusively.
        linked: The oldest version that a consumer's hard links must hold, once there are some.
    """

    given: dict[int, Given] = field(default_factory=dict)
    acknowledged: int = 0
    epoch: int = 0
    lines: frozenset[int | None] = frozenset({None})
    cut: tuple[int, int] | None = None
    floor: int = 1
    linked: int | None = None

    def copy(self) -> "Ledger":
        return replace(self, given=dict(self.given))

    def told(self, newest: int) -> list[int]:
        """The schema versions that were told up to a version."""
        return [
            json.loads(body or b"")["v"]
            for version, given in sorted(self.given.items())
            for kind, _, body in given.changes
            if kind == SCHEMA and version <= newest
        ]

    def check(self, system: SimulatedFileSystem, options: LogOptions = OPTIONS) -> None:
        """Opens the log and compares; then it must take another commit."""
        wal = Wal.open(LOG, options, filesystem=system, clock=Clock(2_000_000_000))
        durable = wal.durable
        assert wal.epoch > self.epoch, f"epoch {wal.epoch} after {self.epoch}"
        if self.cut is not None:
            kept, newest = self.cut
            assert durable == kept or durable >= newest, f"half forgotten: {durable} of {kept} to {newest}"
        else:
            assert durable >= self.acknowledged, f"lost: {durable} of {self.acknowledged} acknowledged"
        assert durable in (0, *self.given), f"phantom: {durable}"
        possible = {durable if line is None else min(line, durable) for line in self.lines}
        assert wal.visible in possible, f"visible is {wal.visible}, not one of {possible}"
        self._compare(wal, system)
        schemas = schemas_of(system, wal)
        expected = self.told(durable)
        assert schemas.versions("Product") == expected, (
            f"schemas {schemas.versions('Product')}, told {expected}"
        )
        if self.linked is not None:
            self._check_links(system)
        (done,) = wal.append([seal_transaction([columns_of([(DATA, b"k", b"on")])], b"{}", options=options)])
        assert (done.version, wal.sync()) == (durable + 1, durable + 1)
        assert contents(wal.reader, done.version)[done.version][0] == [(DATA, b"k", b"on")]
        wal.close()

    def _compare(self, wal: Wal, system: SimulatedFileSystem) -> None:
        durable, visible = wal.durable, wal.visible
        oldest = wal.reader.oldest
        assert oldest <= max(self.floor, 1), (
            f"{oldest} is the oldest, retention may have gone to {self.floor}"
        )
        found = contents(wal.reader) if durable else {}
        assert list(found) == list(range(oldest, visible + 1)), f"{list(found)} of {oldest} to {visible}"
        follower = Follower.open(LOG, filesystem=system)
        assert follower.visible == visible
        follower.close()
        if wal.withholding:
            wal.show(None)
            wal.publish_tail(wal.visible)
            found = contents(wal.reader)
            assert list(found) == list(range(oldest, durable + 1))
        for version, (changes, annotations, producer, sequence) in found.items():
            given = self.given[version]
            assert changes == given.changes, f"other content in version {version}"
            assert (annotations, producer, sequence) == (given.annotations, given.producer, given.sequence)
        for producer_id in PRODUCERS:
            last = [
                (given.sequence, version)
                for version, given in sorted(self.given.items())
                if given.producer == producer_id and version <= durable
            ]
            state = wal.producer(producer_id)
            assert (state[:2] if state else None) == (last[-1] if last else None), f"{producer_id}: {state}"

    def _check_links(self, system: SimulatedFileSystem) -> None:
        follower = Follower.open(LOG, filesystem=system, consumer=CONSUMER)
        try:
            found = contents(follower.reader)
            assert self.linked is not None
            missing = set(range(self.linked, follower.visible + 1)) - set(found)
            assert not missing, f"the consumer's links lack {missing}"
            for version, (changes, *_) in found.items():
                assert changes == self.given[version].changes
        finally:
            follower.close()


class Life:
    """Drives one log; a workload is a function of it.

    A disk without room refuses one attempt, and the next one must succeed: faults are single here.
    """

    def __init__(self, system: SimulatedFileSystem, options: LogOptions = OPTIONS) -> None:
        self.system = system
        self.options = options
        self.clock = Clock()
        self.ledger = Ledger()
        self.wal: Wal = None  # type: ignore[assignment]  # `open` sets it
        self.schemas: Schemas = None  # type: ignore[assignment]  # likewise
        self.refused = 0
        self._number = 0

    def open(self) -> None:
        self._twice(self._open)

    def _open(self) -> None:
        self.wal = Wal.open(LOG, self.options, filesystem=self.system, clock=self.clock)
        self.ledger.epoch = self.wal.epoch
        self.ledger.acknowledged = self.wal.durable
        self.schemas = schemas_of(self.system, self.wal)

    def _twice(self, attempt: Any) -> Any:
        try:
            return attempt()
        except LogFull:
            self.refused += 1
            return attempt()

    def commit(
        self,
        *sizes: int,
        producer: int | None = None,
        sync: bool = True,
        group: int = 1,
        kind: int = DATA,
        bodies: tuple[bytes, ...] = (),
    ) -> None:
        """Appends ``group`` transactions of one change for each size, and syncs them."""
        wanted = []
        for _ in range(group):
            self._number += 1
            fill = b"%03d|" % self._number
            texts = bodies or tuple((fill * (size // 4 + 1))[:size] for size in sizes)
            changes: list[tuple[int, bytes, bytes | None]] = [
                (kind, b"entity" if kind == SCHEMA else b"k%d" % at, body) for at, body in enumerate(texts)
            ]
            identity = None if producer is None else PRODUCERS[producer]
            sequence = 0 if producer is None else self._number
            wanted.append(Given(changes, b'{"n":%d}' % self._number, identity, sequence))
        self._twice(lambda: self._append(wanted))
        if sync:
            self.sync()

    def _append(self, wanted: list[Given]) -> None:
        wal, given = self.wal, self.ledger.given
        sealed = [self._seal(one) for one in wanted]
        first = wal.appended + 1
        for version in [version for version in given if version >= first]:
            del given[version]
        given.update({first + place: one for place, one in enumerate(wanted)})
        try:
            done = wal.append(sealed)
        except LogFull:
            for place in range(len(wanted)):
                del given[first + place]
            raise
        finally:
            if not self.system.dead:
                for transaction in sealed:
                    with contextlib.suppress(OSError):
                        transaction.discard()
        assert [one.version for one in done] == list(range(first, first + len(wanted)))

    def _seal(self, one: Given) -> Any:
        for attempt in range(2):
            try:
                return seal_transaction(
                    [columns_of(one.changes)],
                    one.annotations,
                    options=self.options,
                    producer=one.producer,
                    sequence=one.sequence,
                    filesystem=self.system,
                    directory=LOG,
                )
            except OSError:  # of the spool: the log knows nothing of it yet
                assert not attempt
        return None

    def sync(self) -> None:
        self.ledger.acknowledged = self.wal.sync()
        self.wal.publish_tail(self.wal.visible)

    def maintain(self, floor: int | None = None, steps: int = 1) -> None:
        if floor is not None:
            self.ledger.floor = max(self.ledger.floor, floor)
        for _ in range(steps):
            self.wal.maintain(floor)

    def pass_time(self, seconds: float = 6.0) -> None:
        """So long that the segment is due."""
        self.clock.now += int(seconds * 1e6)

    def show(self, line: int | None) -> None:
        self._twice(lambda: self._show(line))
        self.wal.publish_tail(self.wal.visible)

    def _show(self, line: int | None) -> None:
        before = self.ledger.lines
        self.ledger.lines = before | {line}
        try:
            self.wal.show(line)
        except LogFull:
            self.ledger.lines = before
            raise
        self.ledger.lines = frozenset({line})

    def forget_after(self, version: int) -> None:
        self._twice(lambda: self._forget_after(version))

    def _forget_after(self, version: int) -> None:
        ledger = self.ledger
        self.sync()
        ledger.cut = (version, self.wal.appended)
        lines = ledger.lines
        ledger.lines = lines | {line if line is not None and line < version else None for line in lines}
        try:
            self.wal.forget_after(version)
        except LogFull:
            ledger.cut, ledger.lines = None, lines
            raise
        ledger.lines = frozenset({line if line is not None and line < version else None for line in lines})
        ledger.cut = None
        ledger.acknowledged = version
        ledger.epoch = self.wal.epoch
        for gone in [known for known in ledger.given if known > version]:
            del ledger.given[gone]

    def tell(self) -> None:
        """Tells a schema: the mark, the commit, the file, as `ChangeLog` does."""
        number = len(self.schemas.versions("Product")) + 1
        body = b'{"v":%d}' % number
        for attempt in range(2):
            try:
                self.schemas.mark()
                break
            except OSError:
                assert not attempt
        self.commit(kind=SCHEMA, bodies=(body,))
        place = Position(self.wal.appended, 1)
        self.schemas.adopt([RecordedSchema("Product", "entity", number, place, msgspec.Raw(body))])

    def link(self) -> None:
        for attempt in range(2):
            try:
                self.wal.links.add(CONSUMER)
                break
            except OSError:
                assert not attempt
        self.ledger.linked = self.wal.reader.oldest

    def close(self) -> None:
        self.wal.close()
        self.ledger.acknowledged = self.wal.appended

    def reopen(self) -> None:
        self.close()
        self.open()
