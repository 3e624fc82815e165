"""A log as its compacted state uses it."""

from collections.abc import Callable
from pathlib import Path

from publishers.commits.group_commit import Committer
from publishers.errors import InvalidOption
from publishers.fanout.service import Service
from publishers.log.start import Places
from publishers.model.position import Position
from publishers.state import CompactedState
from publishers.state.table import STATE_DIRECTORY
from publishers.wal import FileSystem, Hold, RealFileSystem, Wal

__all__ = ["LogOfState", "state_beside"]


class LogOfState:
    """See `publishers.state.ports.StatedLog`.

    Args:
        name: What the log is called.
        files: Its files.
        places: Judges places.
        committer: Syncs it.
        hold: ``ChangeLog.hold``.
    """

    def __init__(
        self,
        name: str,
        files: Wal,
        places: Places,
        committer: Committer,
        hold: Callable[..., Hold],
    ) -> None:
        self.name = name
        self.log_id = files.log_id
        self.reader = files.reader
        self.vouch = committer.vouch
        self._places = places
        self._hold = hold

    def token(self, position: Position) -> str:
        """See `StatedLog.token`."""
        return str(self._places.lineage.token(position))

    def judge(self, token: str) -> Position:
        """See `StatedLog.judge`."""
        return self._places.kept(token)

    def hold(self, name: str, position: Position, sync: Callable[[], None]) -> Hold:
        """See `StatedLog.hold`."""
        return self._hold(name, position, sync=sync)


def state_beside(
    path: Path,
    files: Wal,
    storage: FileSystem,
    places: Places,
    committer: Committer,
    service: Service,
    hold: Callable[..., Hold],
) -> CompactedState:
    """The compacted state of the log at a path, which is not started yet.

    Raises:
        InvalidOption: If the log is on a filesystem that SQLite does not know.
        StateIncomplete, StateUnusable: See `CompactedState`.
    """
    if not isinstance(storage, RealFileSystem):
        raise InvalidOption("state", True, "False where another filesystem is given: SQLite does not know it")
    log = LogOfState(path.resolve().name, files, places, committer, hold)
    return CompactedState(log, service, path / STATE_DIRECTORY)
