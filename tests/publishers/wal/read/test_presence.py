"""F144: what a follower finds out about files that are not, or not any more, those that it has read."""

import errno
import random
from unittest import mock

import pytest

from publishers.errors import LogGone, LogReplaced, LogUnreadable, WalCorrupted
from publishers.wal import Follower
from publishers.wal.disk.filesystem import RealFileSystem
from publishers.wal.files.head import HEAD_NAME
from publishers.wal.files.tail_page import TAIL_NAME
from publishers.wal.format.control import Epoch
from publishers.wal.read.presence import continues
from tests.harness.scale import each, scaled
from tests.publishers.wal.logs import commit, contents, opened
from tests.simulation.filesystem import SimulatedFileSystem
from tests.simulation.workload import LOG

REAL = RealFileSystem()


class Life:
    """A directory that is written, copied and restored, and somebody who follows it.

    What is on the disk is known by its bodies, each of which is given once.
    """

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.system = SimulatedFileSystem(seed)
        self.disk = []
        self.copies = []
        self.owner = opened(self.system)
        self.write()
        self.follow()

    def follow(self):
        self.follower = Follower.open(LOG, filesystem=self.system)
        self.follower.refresh()  # as whoever follows does at once: an opening alone reads no epochs
        self.seen = contents(self.follower) if self.follower.visible else []
        self.restored = False
        self.suspects = False

    def write(self):
        if self.owner is None:
            self.owner = opened(self.system)
        for _ in range(self.chance.randint(0, 3)):
            body = b"%030d" % self.chance.getrandbits(90)
            self.disk.append((commit(self.owner, body), [body]))

    def end(self):
        if self.owner is not None:
            self.owner.close()
            self.owner = None

    def copy(self):
        self.copies.append((self.system.snapshot(LOG), list(self.disk)))

    def restore(self):
        if not self.copies:
            return
        self.end()
        files, self.disk = self.chance.choice(self.copies)
        self.disk = list(self.disk)
        anew = self.chance.random() < 0.5
        for name, data in files.items():
            if anew or name not in self.system.names(LOG):
                self.system.replace(LOG / name, data)
            else:
                self.system.content(LOG / name)[:] = data
        lost = set(self.system.names(LOG)) - set(files)
        if self.chance.random() < 0.3:
            lost.add(TAIL_NAME)
        for name in lost & set(self.system.names(LOG)):
            self.system.unlink(LOG / name)
        self.restored = True

    def look(self):
        """Looks once; what is new continues what was seen, in what is there now."""
        before = self.follower.visible
        try:
            visible = self.follower.refresh()
            if visible > before:
                # A branch may have all that was seen, and not the empty epoch behind that: then the chain of frames tells it.
                self.seen += contents(self.follower, before + 1)
                assert self.seen == self.disk[:visible]
            self.suspects = False
        except (LogGone, LogReplaced, WalCorrupted):
            if not self.restored:
                raise
            if self.suspects or self.follower.visible > before:
                self.follow()
            self.suspects = True

    def settled(self):
        """After what was done, and two looks: either it was noticed, or there was nothing to be noticed."""
        self.write()  # where TAIL is missing, HEAD may tell of less than there is
        self.end()
        for _ in range(3):
            self.look()
        assert self.seen == self.disk


@pytest.mark.parametrize("seed", each(range(scaled(300))))
def test_nothing_of_another_history_is_ever_taken_for_what_follows(seed):
    """F144: in a random life of a directory, restored anew or over its files at any moment; and no accident is seen where none is."""
    life = Life(seed)
    steps = (life.write, life.write, life.end, life.copy, life.restore, life.look, life.look)
    for _ in range(50):
        life.chance.choice(steps)()
    life.settled()


def test_of_an_epoch_that_nobody_remembers_nobody_says_that_it_is_another():
    """F144: retention has taken it."""
    one, two, three = Epoch(1, 1, 11), Epoch(2, 5, 22), Epoch(4, 9, 44)
    assert continues((), one, 3)
    assert continues((two, three), one, 4)
    assert continues((one, two), one, 4)
    assert not continues((one, two), one, 5)
    assert continues((one, two, three), two, 8)
    assert not continues((one, three), two, 8)
    assert not continues((one, Epoch(2, 5, 23)), two, 6)


def test_what_is_not_whole_yet_is_no_log(tmp_path):
    """F144."""
    path = tmp_path / "log"
    commit(log := opened(REAL, path=path), b"a")
    log.close()
    follower = Follower.open(path)
    path.rename(tmp_path / "away")
    with pytest.raises(LogGone):
        follower.refresh()
    path.write_text("a file")
    with pytest.raises(LogGone):
        follower.refresh()
    path.unlink()
    path.mkdir()
    (path / HEAD_NAME).write_bytes(b"")
    with pytest.raises(WalCorrupted, match="HEAD has no valid slot"):
        follower.refresh()
    follower.close()


def test_a_head_that_cannot_be_opened_tells_nothing(tmp_path):
    """F144: so whoever has the log open goes on with what it has."""
    path = tmp_path / "log"
    commit(log := opened(REAL, path=path), b"a")
    log.close()
    follower = Follower.open(path)
    (path / HEAD_NAME).unlink()
    (path / HEAD_NAME).symlink_to(HEAD_NAME)
    assert follower.refresh() == 1
    with pytest.raises(LogUnreadable):
        follower.check()
    follower.close()


@pytest.mark.parametrize(("number", "error"), [(errno.ESTALE, LogGone), (errno.EIO, WalCorrupted)])
def test_an_error_of_the_disk_is_told_from_a_directory_that_its_server_forgot(tmp_path, number, error):
    """F144."""
    path = tmp_path / "log"
    opened(REAL, path=path).close()
    follower = Follower.open(path)
    path.rename(tmp_path / "away")
    with (
        mock.patch.object(RealFileSystem, "open", side_effect=OSError(number, "simulated")),
        pytest.raises(error),
    ):
        follower.check()
    follower.close()
