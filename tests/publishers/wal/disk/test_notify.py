"""Notifiers and listeners. That they reach other processes stands in tests/crash/test_wakeup.py."""

import contextlib
import errno
import os
import signal
import socket
import threading
from unittest import mock

import pytest

from publishers.wal.disk import notify
from publishers.wal.disk.notify import LONGEST_PATH, FileNotifier, PollingListener, SilentNotifier, listen

LONG = 30.0


@pytest.fixture
def place(tmp_path):
    """A short path, whatever pytest has made of the name of the test."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@contextlib.contextmanager
def ringing(directory, listeners=1):
    with contextlib.ExitStack() as stack:
        notifier = FileNotifier(directory)
        stack.callback(notifier.close)
        made = []
        for _ in range(listeners):
            made.append(listen(directory))
            stack.callback(made[-1].close)
        notifier.look()
        for listener in made:
            assert listener.wait(LONG), "who is new is told that he will hear"
        yield notifier, made


def too_long(place):
    deep = place / ("deep" * 20) / ("deeper" * 10)
    deep.mkdir(parents=True)
    assert len(os.fsencode(deep)) > LONGEST_PATH
    return deep


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_a_ring_ends_the_wait_of_every_reader(place, kind):
    """F51: by a socket, or by inotify where the path of a socket would be too long."""
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory, listeners=3) as (notifier, listeners):
        assert {listener.kind for listener in listeners} == {kind}
        for _ in range(20):
            notifier.notify()
            assert all(listener.wait(LONG) for listener in listeners)
        assert not any(listener.wait(0) for listener in listeners), "one wait hears all that rang before"
        assert len(os.listdir(directory / "readers")) == (3 if kind == "datagram" else 0)
    assert os.listdir(directory / "readers") == []


def test_many_rings_are_heard_as_one(place):
    with ringing(place) as (notifier, (listener,)):
        for _ in range(5):
            notifier.notify()
        assert listener.wait(LONG)
        assert not listener.wait(0)


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_who_does_not_listen_holds_nobody_up(place, kind):
    """F120: the queue of a reader that is stopped gets full; a ring does not wait for it, and it is heard afterwards."""
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory) as (notifier, (listener,)):
        for _ in range(2000):
            notifier.notify()
        if kind == "datagram":
            assert notifier.pending > 1000
            assert notifier.sent < 1000
        assert listener.wait(LONG)
        assert not listener.wait(0)
        notifier.notify()
        assert listener.wait(LONG)


def test_an_owner_pays_nothing_while_nobody_listens(place):
    with ringing(place, listeners=0) as (notifier, _):
        before = os.stat(place / "BELL").st_mtime_ns
        with mock.patch.object(notify.os, "pwrite", side_effect=AssertionError):
            for _ in range(10):
                notifier.notify()
                notifier.look()
        assert os.stat(place / "BELL").st_mtime_ns == before
        assert notifier.sent == 0


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_who_has_closed_its_ear_costs_nothing_any_more(place, kind):
    directory = place if kind == "datagram" else too_long(place)
    with ringing(directory) as (notifier, (listener,)):
        listener.close()
        listener.close()
        notifier.notify()
        notifier.look()
        sent = notifier.sent
        assert notifier._sockets == ()
        assert not notifier._watched
        notifier.notify()
        assert notifier.sent == sent


def test_the_socket_of_a_killed_reader_is_removed(place, script):
    """F120: at the next ring, and at the next opening of the log."""
    code = (
        "import sys; from pathlib import Path; from publishers.wal.disk.notify import listen\n"
        "listener = listen(Path(sys.argv[1])); print(listener.kind, flush=True); listener.wait(60); listener.wait(60)"
    )

    def killed():
        with script(code, place) as child:
            assert child.stdout.readline() == "datagram\n"
            notifier.look()
            child.send_signal(signal.SIGKILL)
            assert child.wait(60) == -signal.SIGKILL

    with ringing(place) as (notifier, (listener,)):
        killed()
        assert len(os.listdir(place / "readers")) == 2
        notifier.notify()
        assert len(os.listdir(place / "readers")) == 1
        assert listener.wait(LONG)
        killed()
    assert len(os.listdir(place / "readers")) == 1
    FileNotifier(place).close()
    assert os.listdir(place / "readers") == []


def test_what_is_no_socket_is_passed_over(place):
    """Whatever somebody has put into the directory; what cannot be sent to is left alone if it may be alive."""
    with ringing(place) as (notifier, (listener,)):
        (place / "readers" / "note.txt").write_text("x")
        (place / "readers" / "file.sock").write_text("x")
        (place / "readers" / "folder.sock").mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.bind(str(place / "readers" / "stream.sock"))
            notifier.look()
            notifier.notify()
        assert listener.wait(LONG)
        notifier.notify()
        assert listener.wait(LONG)
        left = set(os.listdir(place / "readers"))
        assert {"note.txt", "folder.sock"} < left
        assert "stream.sock" not in left


def test_a_socket_that_may_not_be_sent_to_is_tried_again_later(place):
    with ringing(place) as (notifier, (listener,)):
        sendto = mock.Mock(side_effect=PermissionError(errno.EACCES, "no"))
        with mock.patch.object(notifier, "_socket", mock.Mock(sendto=sendto)):
            notifier.notify()
            notifier.notify()
        assert sendto.call_count == 1
        notifier.look()
        assert listener.wait(LONG)


@pytest.mark.parametrize("kind", ["datagram", "inotify", "poll"])
def test_a_wait_can_be_ended_and_ends_by_itself(place, kind):
    directory = too_long(place) if kind == "inotify" else place
    with contextlib.ExitStack() as stack:
        if kind != "poll":
            stack.callback(FileNotifier(directory).close)
        listener = listen(directory)
        stack.callback(listener.close)
        assert listener.kind == kind
        assert listener.wait(0.001) is False
        for _ in range(3):
            listener.wake()
        assert listener.wait(LONG) is False
        heard = []
        thread = threading.Thread(target=lambda: heard.append(listener.wait(LONG)))
        thread.start()
        listener.wake()
        thread.join(LONG)
        assert heard == [False]
        for _ in range(200_000 if kind != "poll" else 1):
            listener.wake()
        assert listener.wait(LONG) is False
    listener.close()


def test_where_nothing_can_be_made_readers_poll(place):
    (place / "readers").write_text("not a directory")
    notifier = FileNotifier.open(place)
    assert isinstance(notifier, SilentNotifier)
    notifier.look()
    notifier.notify()
    notifier.close()
    assert isinstance(listen(place), PollingListener)


@pytest.mark.parametrize("missing", ["library", "watches", "function"])
def test_without_inotify_a_reader_polls(place, missing):
    directory = too_long(place)
    FileNotifier(directory).close()
    library = mock.Mock()
    if missing == "function":
        library = mock.Mock(spec=[])
    elif missing == "library":
        library.inotify_init1.return_value = -1
    else:
        descriptor = os.open(directory, os.O_RDONLY)
        library.inotify_init1.return_value = descriptor
        library.inotify_add_watch.return_value = -1
    with mock.patch.object(notify.ctypes, "CDLL", return_value=library):
        assert listen(directory).kind == "poll"


def test_nothing_stays_behind_where_an_ear_cannot_be_made(place):
    FileNotifier(place).close()
    before = os.listdir("/proc/self/fd")
    with mock.patch.object(notify.os, "pipe", side_effect=OSError(errno.EMFILE, "too many")):
        assert listen(place).kind == "poll"
    with mock.patch.object(notify.os, "chmod", side_effect=OSError(errno.EPERM, "no")):
        listener = listen(place)
        assert listener.kind == "inotify"
        listener.close()
    with mock.patch.object(notify.socket, "socket", side_effect=OSError(errno.EMFILE, "too many")):
        assert isinstance(FileNotifier.open(place), SilentNotifier)
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(place / "readers") == []


def test_a_closed_bell_is_silent(place):
    with ringing(place) as (notifier, (listener,)):
        notifier.close()
        notifier.close()
        notifier.notify()
        notifier.look()
        assert not listener.wait(0)


def test_a_bell_goes_on_where_its_directory_was_removed(place):
    with ringing(place) as (notifier, (listener,)):
        listener.close()
        (place / "readers").rmdir()
        notifier.look()
        notifier.notify()


@pytest.mark.parametrize("kind", ["datagram", "inotify"])
def test_what_a_child_lets_go_of_stays_with_its_parent(place, kind):
    """F143: descriptors are closed, and names and locks are kept for who has other copies of them."""
    directory = place if kind == "datagram" else too_long(place)
    before = os.listdir("/proc/self/fd")
    notifier, listener = FileNotifier(directory), listen(directory)
    assert listener.kind == kind
    names = os.listdir(directory / "readers")
    for _ in range(2):
        notifier.forked(1)
        listener.forked(1)
    notifier.notify()
    notifier.look()
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(directory / "readers") == names
    with pytest.raises(OSError, match="Bad file descriptor"):
        listener.wake()
    for name in names:
        os.unlink(directory / "readers" / name)
