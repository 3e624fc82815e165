"""Which positions belong to the history of a log."""

from uuid import UUID

from publishers.errors import HistoryPruned, PositionAhead, PositionForeign, PositionForked
from publishers.position import Position, PositionToken
from publishers.wal import Follower, Wal

__all__ = ["Lineage"]


class Lineage:
    """Puts positions into the form that clients keep, and judges what they bring back.

    Args:
        files: The log, whose epochs tell where its history may have been cut.
    """

    def __init__(self, files: Wal | Follower) -> None:
        self._files = files

    @property
    def log_id(self) -> UUID:
        """What tells the log from every other one."""
        return self._files.log_id

    def token(self, position: Position) -> PositionToken:
        """A position with the epoch that wrote it, or will."""
        epoch = self._files.epoch
        for number, first_version in self._files.epochs:
            if first_version <= position.version:
                epoch = number
        return PositionToken(self._files.log_id, epoch, position)

    def judge(self, token: PositionToken, oldest: Position, head: Position) -> Position:
        """The position of a token, if it can be read from.

        Raises:
            PositionForeign: If it belongs to another log.
            PositionForked: If it lies beyond what survived of its epoch.
            PositionAhead: If it lies beyond ``head``.
            HistoryPruned: If it lies before ``oldest``.
        """
        log_id, epoch, position = token
        if log_id != self._files.log_id:
            raise PositionForeign(log_id, self._files.log_id)
        for number, first_version in self._files.epochs:
            if number > epoch:
                if position > (end := Position(first_version, 0)):
                    raise PositionForked(epoch, end)
                break
        if epoch > self._files.epoch or position > head:
            raise PositionAhead(head)
        if position < oldest:
            raise HistoryPruned(oldest)
        return position
