"""Bells and ears. That they reach other processes stands in tests/crash/test_wakeup.py."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from unittest import mock

import pytest

from publishers.wal import wakeup
from publishers.wal.bell import PollingEar, SilentBell
from publishers.wal.wakeup import LONGEST_PATH, RealBell, listen

LONG = 30.0


@pytest.fixture
def place(tmp_path):
    """A short path, whatever pytest has made of the name of the test."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@contextlib.contextmanager
def ringing(directory, ears=1):
    with contextlib.ExitStack() as stack:
        bell = RealBell(directory)
        stack.callback(bell.close)
        made = []
        for _ in range(ears):
            made.append(listen(directory))
            stack.callback(made[-1].close)
        bell.look()
        for ear in made:
            assert ear.wait(LONG), "who is new is told that he will hear"
        yield bell, made


def too_long(place):
    deep = place / ("deep" * 20) / ("deeper" * 10)
    deep.mkdir(parents=True)
    assert len(os.fsencode(deep)) > LONGEST_PATH
    return deep


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_ring_ends_the_wait_of_every_reader(place, kind):
    """F51: by a socket, or by inotify where the path of a socket would be too long."""
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory, ears=3) as (bell, ears):
        assert {ear.kind for ear in ears} == {kind}
        for _ in range(20):
            bell.ring()
            assert all(ear.wait(LONG) for ear in ears)
        assert not any(ear.wait(0) for ear in ears), "one wait hears all that rang before"
        assert len(os.listdir(directory / "readers")) == (3 if kind == "datagram" else 0)
    assert os.listdir(directory / "readers") == []


def test_many_rings_are_heard_as_one(place):
    with ringing(place) as (bell, (ear,)):
        for _ in range(5):
            bell.ring()
        assert ear.wait(LONG)
        assert not ear.wait(0)


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_who_does_not_listen_holds_nobody_up(place, kind):
    """F120: the queue of a reader that is stopped gets full; a ring does not wait for it, and it is heard afterwards."""
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory) as (bell, (ear,)):
        for _ in range(2000):
            bell.ring()
        if kind == "datagram":
            assert bell.pending > 1000
            assert bell.sent < 1000
        assert ear.wait(LONG)
        assert not ear.wait(0)
        bell.ring()
        assert ear.wait(LONG)


def test_an_owner_pays_nothing_while_nobody_listens(place):
    with ringing(place, ears=0) as (bell, _):
        before = os.stat(place / "BELL").st_mtime_ns
        with mock.patch.object(wakeup.os, "pwrite", side_effect=AssertionError):
            for _ in range(10):
                bell.ring()
                bell.look()
        assert os.stat(place / "BELL").st_mtime_ns == before
        assert bell.sent == 0


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_who_has_closed_its_ear_costs_nothing_any_more(place, kind):
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory) as (bell, (ear,)):
        ear.close()
        ear.close()
        bell.ring()
        bell.look()
        sent = bell.sent
        assert bell._sockets == ()
        assert not bell._watched
        bell.ring()
        assert bell.sent == sent


def test_the_socket_of_a_killed_reader_is_removed(place):
    """F120: at the next ring, and at the next opening of the log."""
    code = (
        "import sys; from pathlib import Path; from publishers.wal.wakeup import listen\n"
        "ear = listen(Path(sys.argv[1])); print(ear.kind, flush=True); ear.wait(60); ear.wait(60)"
    )

    def killed():
        command = [sys.executable, "-c", code, str(place)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
            assert child.stdout.readline() == b"datagram\n"
            bell.look()
            child.send_signal(signal.SIGKILL)
            assert child.wait(20) == -signal.SIGKILL

    with ringing(place) as (bell, (ear,)):
        killed()
        assert len(os.listdir(place / "readers")) == 2
        bell.ring()
        assert len(os.listdir(place / "readers")) == 1
        assert ear.wait(LONG)
        killed()
    assert len(os.listdir(place / "readers")) == 1
    RealBell(place).close()
    assert os.listdir(place / "readers") == []


def test_what_is_no_socket_is_passed_over(place):
    """Whatever somebody has put into the directory; what cannot be sent to is left alone if it may be alive."""
    with ringing(place) as (bell, (ear,)):
        (place / "readers" / "note.txt").write_text("x")
        (place / "readers" / "file.sock").write_text("x")
        (place / "readers" / "folder.sock").mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.bind(str(place / "readers" / "stream.sock"))
            bell.look()
            bell.ring()
        assert ear.wait(LONG)
        bell.ring()
        assert ear.wait(LONG)
        left = set(os.listdir(place / "readers"))
        assert {"note.txt", "folder.sock"} < left
        assert "stream.sock" not in left


def test_a_socket_that_may_not_be_sent_to_is_tried_again_later(place):
    with ringing(place) as (bell, (ear,)):
        sendto = mock.Mock(side_effect=PermissionError(errno.EACCES, "no"))
        with mock.patch.object(bell, "_socket", mock.Mock(sendto=sendto)):
            bell.ring()
            bell.ring()
        assert sendto.call_count == 1
        bell.look()
        assert ear.wait(LONG)


@pytest.mark.parametrize("kind", ["datagram", "inotify", "poll"])
def test_a_wait_can_be_ended_and_ends_by_itself(place, kind):
    directory = too_long(place) if kind == "inotify" else place
    with contextlib.ExitStack() as stack:
        if kind != "poll":
            stack.callback(RealBell(directory).close)
        ear = listen(directory)
        stack.callback(ear.close)
        assert ear.kind == kind
        assert ear.wait(0.001) is False
        for _ in range(3):
            ear.wake()
        assert ear.wait(LONG) is False
        heard = []
        thread = threading.Thread(target=lambda: heard.append(ear.wait(LONG)))
        thread.start()
        ear.wake()
        thread.join(LONG)
        assert heard == [False]
        for _ in range(200_000 if kind != "poll" else 1):
            ear.wake()
        assert ear.wait(LONG) is False
    ear.close()


def test_where_nothing_can_be_made_readers_poll(place):
    (place / "readers").write_text("not a directory")
    bell = RealBell.open(place)
    assert isinstance(bell, SilentBell)
    bell.look()
    bell.ring()
    bell.close()
    assert isinstance(listen(place), PollingEar)


@pytest.mark.parametrize("missing", ["library", "watches", "function"])
def test_without_inotify_a_reader_polls(place, missing):
    directory = too_long(place)
    RealBell(directory).close()
    library = mock.Mock()
    if missing == "function":
        library = mock.Mock(spec=[])
    elif missing == "library":
        library.inotify_init1.return_value = -1
    else:
        descriptor = os.open(directory, os.O_RDONLY)
        library.inotify_init1.return_value = descriptor
        library.inotify_add_watch.return_value = -1
    with mock.patch.object(wakeup.ctypes, "CDLL", return_value=library):
        assert listen(directory).kind == "poll"


def test_nothing_stays_behind_where_an_ear_cannot_be_made(place):
    RealBell(place).close()
    before = os.listdir("/proc/self/fd")
    with mock.patch.object(wakeup.os, "pipe", side_effect=OSError(errno.EMFILE, "too many")):
        assert listen(place).kind == "poll"
    with mock.patch.object(wakeup.os, "chmod", side_effect=OSError(errno.EPERM, "no")):
        ear = listen(place)
        assert ear.kind == "inotify"
        ear.close()
    with mock.patch.object(wakeup.socket, "socket", side_effect=OSError(errno.EMFILE, "too many")):
        assert isinstance(RealBell.open(place), SilentBell)
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(place / "readers") == []


def test_a_closed_bell_is_silent(place):
    with ringing(place) as (bell, (ear,)):
        bell.close()
        bell.close()
        bell.ring()
        bell.look()
        assert not ear.wait(0)


def test_a_bell_goes_on_where_its_directory_was_removed(place):
    with ringing(place) as (bell, (ear,)):
        ear.close()
        (place / "readers").rmdir()
        bell.look()
        bell.ring()


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_what_a_child_lets_go_of_stays_with_its_parent(place, kind):
    """F143: descriptors are closed, and names and locks are kept for who has other copies of them."""
    directory = place if kind == "datagram" else too_long(place)
    before = os.listdir("/proc/self/fd")
    bell, ear = RealBell(directory), listen(directory)
    assert ear.kind == kind
    names = os.listdir(directory / "readers")
    for _ in range(2):
        bell.forked(1)
        ear.forked(1)
    bell.ring()
    bell.look()
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(directory / "readers") == names
    with pytest.raises(OSError, match="Bad file descriptor"):
        ear.wake()
    for name in names:
        os.unlink(directory / "readers" / name)
