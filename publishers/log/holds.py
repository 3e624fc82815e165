"""What the owner of a log keeps for consumers that have not read it yet: history within caps, and their positions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flow import hooks
from publishers.commits import Committer
from publishers.errors import InvalidOption, LogReadOnly, PositionAhead
from publishers.groups import ConsumerGroups
from publishers.journal import Journal
from publishers.log.dead_log import DeadLetterLog
from publishers.log.housekeeping import Job
from publishers.log.log_port import LogPort
from publishers.log.readable import ReadableLog
from publishers.log.tailing import FollowerThread
from publishers.model.position import Position, check_position
from publishers.slots import Slots
from publishers.slots.book import SlotBook
from publishers.slots.record import SLOTS_NAME
from publishers.state import CompactedState
from publishers.state.table import STATE_DIRECTORY
from publishers.wal import FileSystem, Follower, Hold, RealFileSystem, Wal

__all__ = ["KeepingLog"]


class KeepingLog(ReadableLog):
    """The keeping half of a log, for its owner.

    Attributes:
        path: Its directory.
    """

    path: Path
    _files: Wal | Follower
    _storage: FileSystem
    _committer: Committer | None
    _slots: Slots | None
    _groups: ConsumerGroups | None
    _housekeeping: FollowerThread | Job
    _upkeep: Job | None
    _syncing: Job | None

    @property
    def slots(self) -> Slots:
        """The slots of the log: positions that the owner keeps for consumers.

        Raises:
            LogReadOnly: If this opening does not own the log.
            LogClosed: If the log was closed.
        """
        if self._slots is None:
            raise LogReadOnly(self.path, "was opened with read_only=True: its slots belong to its owner,")
        self._check_open()
        return self._slots

    @property
    def groups(self) -> ConsumerGroups:
        """The groups of the log: consumers that share its changes. Only the owner has them.

        Raises:
            LogReadOnly: If this opening does not own the log.
            LogClosed: If the log was closed.
        """
        if self._groups is None:
            raise LogReadOnly(self.path, "was opened with read_only=True: its groups belong to its owner,")
        self._check_open()
        return self._groups

    def _keep(self, files: Wal, committer: Committer, open_beside: Callable[[Path], Any]) -> None:
        """Makes the slots, the groups and, if the options ask for it, the compacted state, which is not started yet."""
        log = LogPort(
            self.path.resolve().name,
            self._service,
            self._places,
            files,
            committer,
            hold=self.hold,
            check=self._check_open,
            check_published=self._check_published,
            poke=self._poke,
            rouse=self._rouse,
        )
        journal = Journal(self._storage, self.path / SLOTS_NAME, files.log_id, files.insist)
        self._slots = Slots(log, SlotBook(log, journal, self._service.options))
        self._groups = ConsumerGroups(
            log,
            self._storage,
            self.path,
            files.log_id,
            self._service.options,
            files.insist,
            lambda path: DeadLetterLog(open_beside(path)),
        )
        self._snapshot_hold = self.hold
        if self._service.options.state:
            if not isinstance(self._storage, RealFileSystem):
                raise InvalidOption(
                    "state", True, "False where another filesystem is given: SQLite does not know it"
                )
            self._state = CompactedState(log, self._service, self.path / STATE_DIRECTORY)

    def _poke(self) -> None:
        self._housekeeping.poke()

    def _rouse(self) -> None:
        """Wakes the housekeeping of an idle log, and under ``interval`` requests a sync, if none is requested."""
        upkeep, syncing = self._upkeep, self._syncing
        if upkeep is not None and not upkeep.armed:
            upkeep.armed = True
            upkeep.poke()  # at once: it notifies followers that have come while the log was idle
        if syncing is not None and not syncing.armed:
            syncing.rouse()

    def hold(
        self,
        name: str,
        position: Position | None = None,
        *,
        keep_bytes: int | None = None,
        keep_age: float | None = None,
        sync: Callable[[], object] | None = None,
        on_lost: Callable[[Hold], object] | None = None,
    ) -> Hold:
        """Keeps history from retention for a reader that has not read it yet, within caps; only the owner of the log may call it.

        Move the hold as the reader progresses, and release it at the end. A hold is a registration in memory: after a restart
        register it again, at the stored position.

        Args:
            name: Unique name of the hold in this log.
            position: The oldest position that is needed; None for the next version.
            keep_bytes: Most bytes of the log, from the segment of the position to the end, that are kept for it; None for
                the option ``slot_keep_bytes``.
            keep_age: Longest time in seconds for which a closed segment is kept for it; None for ``slot_keep_age``.
            sync: Makes the reader's position durable. The housekeeping calls it before deleting anything, and deletes nothing
                while it raises. It must be quick.
            on_lost: Called once, on the log's pool, if a cap was exceeded and the hold is lost; ``oldest`` of the hold is the
                position where the reader may continue.

        Raises:
            HistoryPruned: If ``position`` is no longer kept.
            PositionAhead: If it lies beyond the end of the log.
            InvalidOption: If the name is in use or not a text, ``position`` is invalid, or a cap is out of its range.
            LogReadOnly: If this opening does not own the log.
        """
        options = self._service.options
        for parameter, value, kind in (("keep_bytes", keep_bytes, int), ("keep_age", keep_age, (int, float))):
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or value < 0):
                raise InvalidOption(parameter, value, "a number from 0, or None for the option of the log")
        if not isinstance(name, str) or not name:
            raise InvalidOption("name", name, "a text")
        holds, head = self._writer()[1].retention.holds, self.head
        if position is not None:
            check_position("position", position)
            if position > head:
                raise PositionAhead(head)
        return holds.add(
            name,
            head if position is None else position,
            keep_bytes=options.slot_keep_bytes if keep_bytes is None else keep_bytes,
            keep_age=options.slot_keep_age if keep_age is None else keep_age,
            sync=sync,
            on_lost=on_lost and (lambda hold: self._service.run_aside(partial(_notify_lost, on_lost, hold))),
        )

    def _writer(self) -> tuple[Committer, Wal]:
        self._check_open()
        if self._committer is None or not isinstance(self._files, Wal):
            raise LogReadOnly(self.path)
        return self._committer, self._files


def _notify_lost(on_lost: Callable[[Hold], object], hold: Hold) -> None:
    try:
        on_lost(hold)
    except Exception as error:  # noqa: BLE001 - the hold is lost all the same
        hooks.report(error, hold)
