"""What befalls a directory while somebody follows the log in it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from publishers import ChangeLog
from publishers.errors import LogGone, LogReplaced, PenstockError
from tests.publishers.support import QUICK, fill

KEPT = 3
SHOWN = 5


class Site:
    """A place with a log of 5 versions that nobody writes, and what else an accident needs.

    Attributes:
        path: What is followed: a symbolic link to the log.
        backup: A copy of the log, when it had 3 versions.
        other: Another log.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "shop"
        self.blue = home / "blue"
        self.backup = home / "backup"
        self.other = home / "green"
        self.write(self.blue, KEPT)
        shutil.copytree(self.blue, self.backup)
        self.write(self.blue, SHOWN - KEPT)
        self.write(self.other, SHOWN + 4)
        self.path.symlink_to(self.blue)

    def write(self, path: Path, versions: int) -> None:
        with ChangeLog.open(path, **QUICK) as log:
            fill(log, versions)

    def link(self, target: Path) -> None:
        """Switches the link, in one step."""
        beside = self.home / "new"
        beside.symlink_to(target)
        os.replace(beside, self.path)


def rename_away(site: Site) -> None:
    os.rename(site.blue, site.home / "away")


def remove(site: Site) -> None:
    shutil.rmtree(site.blue)


def remove_the_link(site: Site) -> None:
    site.path.unlink()


def put_another_in_its_place(site: Site) -> None:
    os.rename(site.blue, site.home / "away")
    os.rename(site.other, site.blue)


def switch_to_another(site: Site) -> None:
    site.link(site.other)


def switch_to_a_copy(site: Site) -> None:
    site.link(site.backup)


def restore_anew(site: Site) -> None:
    """Each file is removed, and copied to where it was."""
    for file in site.backup.iterdir():
        if file.is_file():
            (site.blue / file.name).unlink()
            shutil.copyfile(file, site.blue / file.name)


def _write_over(source: Path, target: Path) -> None:
    for file in sorted(source.iterdir()):
        if file.is_file():
            with (target / file.name).open("r+b") as old:
                old.write(file.read_bytes())
                old.truncate()


def restore_over(site: Site) -> None:
    """The files stay, and what is in them is replaced."""
    _write_over(site.backup, site.blue)


def restore_over_without_tail(site: Site) -> None:
    """As after a look into the manual: TAIL tells of what is given up, so it goes."""
    restore_over(site)
    (site.blue / "TAIL").unlink()


def restore_over_and_go_on(site: Site) -> None:
    """Likewise, and before anybody looks, more is written than there was."""
    site.write(site.backup, SHOWN)
    _write_over(site.backup, site.blue)


def write_another_over(site: Site) -> None:
    _write_over(site.other, site.blue)


class Accident(NamedTuple):
    """What happens, and what followers hear."""

    happen: Callable[[Site], None]
    error: type[PenstockError]


_GONE = (rename_away, remove, remove_the_link)
_REPLACED = (
    put_another_in_its_place,
    switch_to_another,
    switch_to_a_copy,
    restore_anew,
    restore_over,
    restore_over_without_tail,
    restore_over_and_go_on,
    write_another_over,
)
ACCIDENTS = [Accident(one, LogGone) for one in _GONE] + [Accident(one, LogReplaced) for one in _REPLACED]

EACH_ACCIDENT: Any = pytest.mark.parametrize(
    "accident", ACCIDENTS, ids=lambda accident: accident.happen.__name__
)
