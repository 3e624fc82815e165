"""All groups of a log: creates, opens, resets and drops them."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption, LogExhausted, PenstockError, TooCostly
from publishers.groups.book import GroupBook
from publishers.groups.dead_letters import DeadLetters
from publishers.groups.delivery import GroupStatistics, GroupTotals
from publishers.groups.errors import GroupCorrupted, GroupError, GroupExists, NoSuchGroup
from publishers.groups.group import ConsumerGroup
from publishers.groups.member import GroupMember
from publishers.groups.ports import DeadLog, GroupLog
from publishers.groups.record import GROUPS_NAME, GroupRecord, replay_group
from publishers.groups.settings import GroupSettings
from publishers.groups.state import GroupState
from publishers.journal import Journal, JournalDamaged
from publishers.model.position import Start
from publishers.options import LogOptions
from publishers.slots.slots import check_slot_name
from publishers.wal import FileSystem

__all__ = ["ConsumerGroups"]

_LOG: Final = logging.getLogger("penstock.groups")
_STOPPED: Final = (GroupState.LOST, GroupState.FORKED, GroupState.TRIPPED)


class ConsumerGroups:
    """The groups of one log, for its owner: ``log.groups``. Thread-safe; iterating yields their names.

    Args:
        log: The log.
        filesystem: The file system of the log.
        path: The directory of the log.
        log_id: The id of the log.
        options: The options of the log, of which ``slots``, ``ack_sync`` and ``ack_every`` count.
        insist: See `Journal`.
        open_dead: Opens the log of dead letters in a directory.
    """

    def __init__(
        self,
        log: GroupLog,
        filesystem: FileSystem,
        path: Path,
        log_id: UUID,
        options: LogOptions,
        insist: Callable[[Callable[[], None]], None],
        open_dead: Callable[[Path], DeadLog],
    ) -> None:
        self._log = log
        self._filesystem = filesystem
        self._directory = path / GROUPS_NAME
        self._log_id = log_id
        self._options = options
        self._insist = insist
        self._open_dead = open_dead
        self._groups: dict[str, ConsumerGroup] = {}
        self._journals: dict[str, Journal] = {}
        self._broken: dict[str, PenstockError] = {}
        self._making = threading.Lock()
        self._loaded = False

    def load(self) -> None:
        """Reads all journals and holds the history that the groups need.

        A damaged journal is noted and logged. While there is one, retention deletes no segment.
        """
        try:
            names = self._filesystem.listing(self._directory)
        except FileNotFoundError:
            names = []
        for name in names:
            if not name.endswith(".dead"):
                self._load(name)
        self._loaded = not self._broken

    def _load(self, name: str) -> None:
        journal = self._journal(name)
        try:
            record = replay_group(journal.load(owned=True))
            if record is not None and not record.dropped:
                self._add(journal, record)
        except JournalDamaged as error:
            self._broken[name] = GroupCorrupted(name, error.path, error.why)
        except LogExhausted:
            raise  # the log cannot be opened now
        except (OSError, ValueError, PenstockError) as error:
            self._broken[name] = GroupCorrupted(name, journal.path, f"not what was written there ({error})")
        if name in self._broken:
            _LOG.error("%s; until then retention deletes no segment", self._broken[name])

    def create(
        self,
        name: str,
        criteria: Criteria | Criterion | Iterable[Criterion] | None = None,
        *,
        since: Any = Start.LATEST,
        **options: Any,
    ) -> ConsumerGroup:
        """Creates a group, durable on return. From then on the log holds history for it, within its caps.

        Args:
            name: Its name: 1 to 64 small letters, digits, ``_`` and ``-``.
            criteria: The criteria of its changes, fixed for the life of the group; None for every change.
            since: Its position, as for ``ChangeLog.changes``; by default the next version.
            options: See `GroupSettings`.

        Raises:
            InvalidOption: If an argument is not valid.
            InvalidCriteria: If ``criteria`` are not valid.
            GroupExists: If there is a group of that name.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            TooCostly: If there are already as many groups as the option ``slots`` of the log allows.
            GroupUnwritten: If the disk has no room or fails; the group does not exist then.
        """
        check_slot_name(name)
        settings = GroupSettings.chosen(options)
        self._log.check()
        wanted, position = Criteria.of(criteria), self._log.find(since)
        if not wanted.criterions:
            raise InvalidOption("criteria", criteria, "some that a change can fulfil")
        with self._making:
            if name in self._broken:
                raise self._broken[name]
            if name in self._groups:
                raise GroupExists(name)
            count, most = len(self._groups) + 1, self._options.slots
            if count > most:
                raise TooCostly(
                    "slots", count, most, "to drop those that nobody needs", what="groups of the log"
                )
            journal = self._journals.get(name)
            if journal is None:
                journal = self._journal(name)
                journal.load(owned=True)
            record = GroupRecord(
                name=name, criteria=wanted.to_stored(), settings=settings, head=self._log.token(position)
            )
            group = self._add(journal, record)
            try:
                group.book.check()
                group.book.write()
            except BaseException:
                group.book.release()
                del self._groups[name]
                raise
            return group

    def open(self, name: str) -> ConsumerGroup:
        """Returns a group of the log.

        Raises:
            NoSuchGroup: If there is none of that name.
            GroupCorrupted: If its journal is damaged.
        """
        self._log.check()
        if isinstance(name, str) and name in self._broken:
            raise self._broken[name]
        found = self._groups.get(name) if isinstance(name, str) else None
        if found is None:
            raise NoSuchGroup(name, self._groups)
        return found

    def join(self, name: str, consumer: str) -> GroupMember:
        """``open(name).join(consumer)``."""
        return self.open(name).join(consumer)

    def info(self, name: str) -> GroupStatistics:
        """The statistics of a group. Errors are those of `open`."""
        return self.open(name).info()

    def seek(self, name: str, since: Any = Start.LATEST) -> GroupStatistics:
        """Moves a group to a position in any state; a lost or forked group serves again. Fences its consumers and drops pending ones.

        Args:
            name: The name of the group.
            since: Its new position, as for `create`.

        Raises:
            NoSuchGroup: If there is none of that name.
            PositionError: If ``since`` is beyond the end of the log, or no longer kept.
            GroupUnwritten: If the disk has no room or fails. Whether the new position is stored is known once the log is opened again.
        """
        group = self.open(name)
        group.book.reset(self._log.find(since))
        group.notify(moved=True)
        return group.info()

    def drop(self, name: str) -> None:
        """Drops a group; the log holds no history for it any more. Its dead letters stay on disk.

        Raises:
            NoSuchGroup: If there is none of that name.
            GroupUnwritten: If the disk has no room or fails. Whether the group exists is known once the log is opened again.
        """
        with self._making:
            group = self.open(name)
            group.book.drop()
            del self._groups[name]
        group.notify(moved=True)
        group.dead.close()

    def statistics(self, *, listed: int | None = None) -> GroupTotals:
        """The statistics of all groups.

        Args:
            listed: Most groups to list one by one; None for all.
        """
        found = sorted(self._groups.items())
        stopped = sum(group.book.state in _STOPPED for _, group in found)
        return GroupTotals(len(found), stopped, tuple(group.info() for _, group in found[:listed]))

    def settle(self) -> bool:
        """Handles timeouts and writes acknowledgements that are due; called by the housekeeping.

        Returns:
            Whether retention may delete history: whether every journal could be read.
        """
        for group in list(self._groups.values()):
            group.tick()
            group.book.settle()
        return self._loaded

    def close(self) -> None:
        """Writes the acknowledgements of every group; called when the log closes."""
        for group in list(self._groups.values()):
            try:
                group.close()
            except (OSError, GroupError, PenstockError) as error:
                _LOG.warning("%s", error)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._groups))

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: object) -> bool:
        return name in self._groups

    def _journal(self, name: str) -> Journal:
        return Journal(self._filesystem, self._directory / name, self._log_id, self._insist)

    def _add(self, journal: Journal, record: GroupRecord) -> ConsumerGroup:
        book = GroupBook(self._log, journal, record, self._options)
        book.begin()
        directory = self._directory / f"{record.name}.dead"
        group = ConsumerGroup(self._log, book, DeadLetters(lambda: self._open_dead(directory)))
        self._journals[record.name] = journal
        self._groups[record.name] = group
        return group
