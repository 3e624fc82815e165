"""Decides which positions belong to the history of a log."""

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from publishers.errors import HistoryPruned, PositionAhead, PositionForeign, PositionForked
from publishers.model.position import Position, PositionToken, epoch_text
from publishers.wal import Epoch, Follower, Wal

__all__ = ["Lineage"]

_BEGINNING: Final = Position(1)
"""Every history of a log contains it, because nothing precedes it."""


class Lineage:
    """Turns positions into the tokens that clients keep, and judges the tokens that they bring back.

    A token names the epoch that wrote the change right before its position. An epoch is one opening of one directory for
    writing, identified by its number and its random bits, and it continues exactly one history. So if a log knows that epoch,
    and the epoch reaches to the position, everything before the position is what the maker of the token had.

    Args:
        files: The log, whose epochs show where its history may have been truncated.
    """

    def __init__(self, files: Wal | Follower) -> None:
        self._files = files

    @property
    def shown(self) -> Position:
        """The position after the newest version that the owner has made visible, which a follower may not have read yet."""
        files = self._files
        return Position((files.shown if isinstance(files, Follower) else files.visible) + 1)

    def token(self, position: Position) -> PositionToken:
        """Returns a position with the epoch that wrote, or will write, the change before it."""
        version, newest = _before(position), self._files.epochs[-1]
        epoch = newest if version >= newest.first_version else self._wrote(version)
        return PositionToken(self._files.log_id, epoch.epoch, position, epoch.random)

    def change_id(self, position: Position) -> str:
        """Returns a text that identifies a change among all changes of any history of any log."""
        epoch = self._wrote(position.version)
        history = f":{epoch_text(epoch.epoch, epoch.random)}" if epoch.random else ""
        return f"{self._files.log_id.hex}{history}:{position}"

    def judge(
        self, token: PositionToken, oldest: Position, head: Position, *, pruned: bool = False
    ) -> Position:
        """Returns the position of a token, if it can be read from.

        Args:
            token: The token that a client kept.
            oldest: The oldest position that is kept.
            head: The position after the newest visible version.
            pruned: Whether to return a position before ``oldest``, instead of raising.

        Raises:
            PositionForeign: If the token belongs to another log.
            PositionForked: If it lies beyond the surviving part of its epoch, or its epoch belongs to another history.
            PositionAhead: If it lies beyond ``head``, or in a follower, if the owner has not recorded its epoch yet.
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
            # Once its newest epoch has random bits, a log gets no further epoch without.
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
        """Returns the epoch of a version, or the oldest known epoch."""
        epochs = self._epochs(version)
        return epochs[max(bisect_right(epochs, version, key=attrgetter("first_version")) - 1, 0)]

    def _epochs(self, version: int) -> tuple[Epoch, ...]:
        """Returns the epochs up to that of a version, and the later ones that are known."""
        epochs = self._files.epochs
        if version < epochs[0].first_version and isinstance(self._files, Follower):
            return self._files.epochs_then(version)
        return epochs


def _before(position: Position) -> int:
    """Returns the version of the last change before a position."""
    return position.version if position.index else position.version - 1


def _knows(epochs: tuple[Epoch, ...], opening: tuple[int, int], epoch: int, random: int) -> bool:
    """Whether an epoch belongs to a log.

    An epoch of format 1 has no random bits and is identified by its number alone, even if it wrote nothing: any number from
    the oldest known epoch to the first with random bits counts. Where epochs before the oldest known one ended is unknown.
    """
    if random:
        return any((one.epoch, one.random) == (epoch, random) for one in epochs)
    newest, bits = opening
    return (
        epochs[0].epoch
        <= epoch
        < next((one.epoch for one in epochs if one.random), newest if bits else newest + 1)
    )
