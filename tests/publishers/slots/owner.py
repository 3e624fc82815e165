"""Slots on a real write-ahead log, without threads: every run on a simulated disk goes the same way again."""

from typing import Any

from penstock_cdc.errors import HistoryPruned, PositionAhead
from penstock_cdc.types import Start
from publishers import Position
from publishers.fanout.state import SubscriptionLag
from publishers.journal import Journal
from publishers.log.lineage import Lineage
from publishers.model.position import PositionToken
from publishers.options import LogOptions
from publishers.slots import Slots
from publishers.slots.book import SlotBook
from publishers.slots.record import SLOTS_NAME
from publishers.wal import Wal
from tests.harness.inside import progress_of
from tests.publishers.wal.logs import opened
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

OPTIONS = LogOptions(
    segment_bytes=65536, fill_step=4096, retain_bytes=65536, retain_age=None, slot_keep_bytes=None
)


class BareLog:
    """See ``publishers.slots.ports.PlaceLog``; nobody subscribes."""

    def __init__(self, wal: Wal) -> None:
        self.wal = wal
        self.lineage = Lineage(wal)
        self.now = 0.0
        self.vouch = wal.vouch
        self.holds = wal.retention.statistics

    def check(self) -> None:
        pass

    def rouse(self) -> None:
        pass

    def poke(self) -> None:
        pass

    def monotonic(self) -> float:
        return self.now

    @property
    def oldest(self) -> Position:
        return Position(max(self.wal.reader.oldest, 1))

    @property
    def head(self) -> Position:
        return Position(self.wal.visible + 1)

    def find(self, since: Any) -> Position:
        if since == Start.EARLIEST:
            return self.oldest
        if since == Start.LATEST:
            return self.head
        if since > self.head:
            raise PositionAhead(self.head)
        return since

    def token(self, position: Position) -> str:
        return str(self.lineage.token(position))

    def judge(self, token: str) -> Position:
        return self.lineage.judge(PositionToken.parse(token), self.oldest, self.head)

    def behind(self, position: Position) -> SubscriptionLag:
        return SubscriptionLag(self.head.version - position.version, None, None, None)

    def hold(self, name: str, position: Position, **caps: Any) -> Any:
        if position < self.oldest:
            raise HistoryPruned(self.oldest)
        return self.wal.retention.holds.add(name, position, **caps)

    def feed(self, *_: Any) -> Any:
        raise AssertionError


class Owner:
    """An opened log and its slots."""

    def __init__(self, system: SimulatedFileSystem, options: LogOptions = OPTIONS) -> None:
        self.wal = opened(system, options)
        self.log = BareLog(self.wal)
        self.book = SlotBook(
            self.log, Journal(system, LOG / SLOTS_NAME, self.wal.log_id, self.wal.insist), options
        )
        self.slots = Slots(self.log, self.book)
        self.book.load()

    def settle(self) -> None:
        """What the housekeeping does."""
        self.log.now += 1.0
        safe = self.book.settle()
        while self.wal.maintain(None if safe else 0):
            pass

    def close(self) -> None:
        self.book.close()
        self.wal.close()


def gave(slot: Any, place: Position) -> None:
    """As if the consumer had been given everything before a place."""
    progress_of(slot).given = max(progress_of(slot).given, place)
