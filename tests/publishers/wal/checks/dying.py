"""A repair that dies at any of its steps, and the next one that finishes it."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from publishers.wal import RealFileSystem
from publishers.wal.checks import Verdict, repair, verify
from publishers.wal.disk.filesystem import Data, Mode, RealFile
from tests.publishers.wal.checks.damage import copy_log, opened_really
from tests.publishers.wal.logs import contents


class Died(BaseException):
    """The process is gone."""


class DyingFile(RealFile):
    system: "DyingFileSystem"

    def pwrite(self, data: Data, offset: int, /) -> int:
        self.system.spend()
        return super().pwrite(data, offset)

    def truncate(self, size: int, /) -> None:
        self.system.spend()
        super().truncate(size)


class DyingFileSystem(RealFileSystem):
    """The real one, until so many steps were made that change something, or may."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1

    def open(self, path: Path, mode: Mode, /) -> DyingFile:
        if mode != "read":
            self.spend()
        made = super().open(path, mode)
        file = DyingFile(os.dup(made._fd), writable=mode != "read")
        made.close()
        file.system = self
        return file

    def rename(self, source: Path, target: Path, /) -> None:
        self.spend()
        super().rename(source, target)

    def unlink(self, path: Path, /) -> None:
        self.spend()
        super().unlink(path)

    def link(self, source: Path, target: Path, /) -> None:
        self.spend()
        super().link(source, target)


def finished(
    source: Path, target: Path, hurt: Callable[[Path], None], *, drop_oldest: bool = False
) -> Iterator[list[tuple[int, list[bytes | None]]]]:
    """Repairs a damaged copy of a log, dies one step later each time, and repairs it again; until no step is left.

    Yields:
        What the log holds after each of these deaths, which has to be sound.
    """
    for steps in count():
        path = copy_log(source, target)
        hurt(path)
        try:
            repair(path, write=True, filesystem=DyingFileSystem(steps), drop_oldest=drop_oldest)
        except Died:
            pass
        else:
            return
        done = repair(path, write=True, drop_oldest=drop_oldest)
        assert done.refused is None, steps
        assert verify(path).verdict is Verdict.SOUND, steps
        wal = opened_really(path)
        yield contents(wal)
        wal.close()
