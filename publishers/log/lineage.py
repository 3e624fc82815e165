"""Which positions belong to the history of a log."""

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from publishers.errors import HistoryPruned, PositionAhead, PositionForeign, PositionForked
from publishers.model.position import Position, PositionToken, epoch_text
from publishers.wal import Epoch, Follower, Wal

__all__ = ["Lineage"]

_BEGINNING: Final = Position(1)
"""Nothing stands before it, so every history of a log has it."""


class Lineage:
    """Puts positions into the form that clients keep, and judges what they bring back.

    A token names the epoch that wrote what stands right before its position. An epoch is one opening of one directory,
    known by its number and its random bits, and begins behind one history. So a log in which that epoch is found, and
    reaches to the position, has everything before the position as whoever made the token had it.

    Args:
        files: The log, whose epochs tell where its history may have been cut.
    """

    def __init__(self, files: Wal | Follower) -> None:
        self._files = files

    def token(self, position: Position) -> PositionToken:
        """A position with the epoch that wrote what stands before it, or will."""
        epoch = self._wrote(_before(position))
        return PositionToken(self._files.log_id, epoch.epoch, position, epoch.random)

    def change_id(self, position: Position) -> str:
        """What tells a change from every other one of any history of any log."""
        epoch = self._wrote(position.version)
        history = f":{epoch_text(epoch.epoch, epoch.random)}" if epoch.random else ""
        return f"{self._files.log_id.hex}{history}:{position}"

    def judge(
        self, token: PositionToken, oldest: Position, head: Position, *, pruned: bool = False
    ) -> Position:
        """The position of a token, if it can be read from.

        Args:
            token: What was kept.
            oldest: The oldest position that is kept.
            head: The position after the newest visible version.
            pruned: Whether a position before ``oldest`` is given back instead of being refused.

        Raises:
            PositionForeign: If it belongs to another log.
            PositionForked: If it lies beyond what survived of its epoch, or the epoch is of another history.
            PositionAhead: If it lies beyond ``head``, or the owner has told nothing of its epoch yet.
            HistoryPruned: If it lies before ``oldest``.
        """
        log_id, epoch, position, random = token
        if log_id != self._files.log_id:
            raise PositionForeign(log_id, self._files.log_id)
        epochs = self._epochs(_before(position))
        known = position <= _BEGINNING or _knows(epochs, self._opening, epoch, random)
        behind = False
        if not known and isinstance(self._files, Follower):
            opening, epochs = self._files.epochs_anew()
            known = _knows(epochs, opening, epoch, random)
            # Since its newest epoch has random bits, a log has no further one without.
            behind = (epoch, random) == opening or (epoch > opening[0] and bool(random or not opening[1]))
        if known:
            end = next((Position(later.first_version) for later in epochs if later.epoch > epoch), None)
            if end is not None and position > end:
                raise PositionForked(epoch, end)
            if position > head:
                raise PositionAhead(head)
        if position < oldest:
            if not pruned:
                raise HistoryPruned(oldest)
        elif not known:
            raise PositionAhead(head) if behind else PositionForked(epoch, None)
        return position

    @property
    def _opening(self) -> tuple[int, int]:
        if isinstance(self._files, Follower):
            return self._files.opening
        newest = self._files.epochs[-1]
        return newest.epoch, newest.random

    def _wrote(self, version: int) -> Epoch:
        """The epoch of a version, or the oldest known one."""
        epochs = self._epochs(version)
        return epochs[max(bisect_right(epochs, version, key=attrgetter("first_version")) - 1, 0)]

    def _epochs(self, version: int) -> tuple[Epoch, ...]:
        """The epochs up to that of a version, and as many later ones as are known."""
        epochs = self._files.epochs
        if version < epochs[0].first_version and isinstance(self._files, Follower):
            return self._files.epochs_then(version)
        return epochs


def _before(position: Position) -> int:
    """The version of the last change before a position."""
    return position.version if position.index else position.version - 1


def _knows(epochs: tuple[Epoch, ...], opening: tuple[int, int], epoch: int, random: int) -> bool:
    """Whether an epoch is one of a log.

    An epoch of format 1 is known by its number alone, also one that wrote nothing: whatever lies between the oldest that is
    known and the first that has random bits. Where older ones ended nobody knows any more.
    """
    if random:
        return any((one.epoch, one.random) == (epoch, random) for one in epochs)
    newest, bits = opening
    return (
        epochs[0].epoch
        <= epoch
        < next((one.epoch for one in epochs if one.random), newest if bits else newest + 1)
    )
