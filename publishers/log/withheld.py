"""Commits that subscribers do not get yet: shown or forgotten later, by whoever writes the log."""

from abc import abstractmethod
from collections import deque

from publishers.commits.group_commit import Committer
from publishers.errors import InvalidOption, LogFailed, LogFull
from publishers.fanout.ports import Wakeable
from publishers.fanout.publish_gate import wake
from publishers.fanout.service import Service
from publishers.log.lineage import Lineage
from publishers.log.readable import ReadableLog
from publishers.schemas.registry import Schemas
from publishers.wal import Follower, Wal
from publishers.wal.disk.filesystem import means_full

__all__ = ["DeferringLog"]


class DeferringLog(ReadableLog):
    """What a log offers beside ``commit(..., visible=False)``."""

    def __init__(self, service: Service, lineage: Lineage, files: Wal | Follower) -> None:
        super().__init__(service, lineage)
        self._files = files

    @abstractmethod
    def _writer(self) -> tuple[Committer, Wal]:
        """What writes the log."""

    def publish(self, version: int) -> None:
        """Shows what is withheld up to a version, and the ordinary commits behind it up to the next withheld one.

        When it returns, everything up to ``version`` is durable and visible; subscribers that run INLINE have it. Again is
        harmless.

        Args:
            version: What ``commit(..., visible=False)`` has returned.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            NoSuchVersion: If there is no such version (any more).
            LogClosed, LogReadOnly, LogFull: If the log cannot tell of it; nothing was shown.
            LogFailed: If the disk failed; opening the log again tells whether it is shown.
        """
        self._writer()[0].publish(_checked(version))

    def forget_after(self, version: int) -> None:
        """Drops what is withheld above a version, as if it had never been committed, and begins a new epoch.

        Its versions and the sequences of its producers are free again. Ordinary commits that waited behind it are dropped
        as well, and so are the schemas that were told there. Again is harmless.

        Args:
            version: The newest one to keep.

        Raises:
            InvalidOption: If ``version`` is not a whole number from 0.
            AlreadyVisible: If more is visible; what was shown cannot be taken back.
            NoSuchVersion: If there is no such version (any more).
            LogClosed, LogReadOnly, LogFull: If the log cannot do it; nothing has changed.
            LogFailed: If the disk failed; if it was begun, opening the log again finishes it.
        """
        committer, kept = self._writer()[0], _checked(version)
        woken: deque[Wakeable] = deque()
        try:
            self._forget(committer, kept, woken)
            wake(woken)  # only now: what they run may tell schemas, or forget
        finally:
            wake(woken)

    def _forget(self, committer: Committer, version: int, woken: deque[Wakeable]) -> None:
        try:
            self._schemas.forgetting(version, lambda: committer.forget_after(version, woken=woken))
        except OSError as error:  # of the schemas: the log itself has not been touched
            if means_full(error):
                raise LogFull(None, 4096) from error
            raise LogFailed("refused", str(error)) from error

    @property
    def withheld(self) -> range | None:
        """The versions that wait for ``publish`` or ``forget_after``; None if there are none, or the log is read-only."""
        committer = self._committer
        return None if committer is None else committer.withheld

    @property
    def visible(self) -> int:
        """Newest version that subscribers may be given; never above ``durable``."""
        return self._service.watermark.visible

    @property
    def durable(self) -> int:
        """Newest version that a crash cannot take; under ``sync="os"`` the newest written one.

        For a read-only opening, which cannot know it, the newest visible one.
        """
        files = self._files
        return files.durable if isinstance(files, Wal) else self.visible

    @property
    def _failed(self) -> bool:
        if self._service.inherited is not None:
            return True
        return self._committer is not None and self._committer.failed is not None

    _committer: Committer | None = None
    _schemas: Schemas


def _checked(version: int) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise InvalidOption("version", version, "a whole number from 0")
    return version
