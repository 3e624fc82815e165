"""Processes that start at once: a server imports what they need, and forks one for each that is asked for.

An interpreter that imports the log uses half a second of CPU, more than most processes of tests then live. A forked one is a new
process like any other: its parent is the process of the tests, and nothing was opened before it.
"""

import contextlib
import ctypes
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

__all__ = ["Forked", "Server", "serving"]

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux


class Forked:
    """One process, with pipes for its standard streams, and the methods of ``Popen`` that tests use."""

    def __init__(self, pid: int, *streams: IO[bytes]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 120.0) -> int:
        """Returns the exit code when it has ended."""
        if self.poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                ready, _, _ = select.select([ended], [], [], timeout)
            finally:
                os.close(ended)
            assert ready, f"process {self.pid} does not end within {timeout} s"
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Server:
    """Asks for processes."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._control = ctypes.CDLL(None).prctl

    def start(self, target: str, *arguments: Any, streams: Mapping[int, int] | None = None) -> Forked:
        """Starts a process that calls a function.

        Args:
            target: ``module:function``.
            arguments: Of the function.
            streams: Descriptors in place of the pipes 0 (standard input), 1 and 2, whose other ends have nothing to read.
        """
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        for number, given in (streams or {}).items():
            os.dup2(given, theirs[number])
        self._control(_SUBREAPER, 1, 0, 0, 0)  # whose parent ends becomes a child of this process
        try:
            socket.send_fds(self._requests, [pickle.dumps((target, arguments))], theirs)
            pid = int(self._requests.recv(100))
            assert self._requests.recv(100) == b"here"
        finally:
            self._control(_SUBREAPER, 0, 0, 0, 0)
            for end in theirs:
                os.close(end)
        return Forked(
            pid, os.fdopen(pipes[0][1], "wb"), os.fdopen(pipes[1][0], "rb", 0), os.fdopen(pipes[2][0], "rb")
        )


@contextlib.contextmanager
def serving(*modules: str) -> Iterator[Server]:
    """Starts a server that has imported some modules, and ends it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, subprocess.Popen([sys.executable, "-m", __name__, *modules], stdin=theirs):
        theirs.close()
        yield Server(ours)
        ours.close()


def _asked() -> Callable[[], Any]:
    """Forks a process for each request, and returns in it what it is to call; exits when nobody asks any more."""
    requests = socket.socket(fileno=os.dup(0))
    while True:
        request, ends, _, _ = socket.recv_fds(requests, 1 << 16, 3)
        if not request:
            sys.exit()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            requests.send(b"here")
            for end in ends:
                os.close(end)
        elif pid := os.fork():
            requests.send(b"%d" % pid)
            os._exit(0)
        else:
            requests.close()
            for number, end in enumerate(ends):
                os.dup2(end, number)
                os.close(end)
            for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
                stream = open(number, mode, buffering=1, closefd=False)  # noqa: SIM115 - it stays as long as the process
                setattr(sys, name, stream)  # the server's own know whether its own files can be sought in
                setattr(sys, f"__{name}__", stream)
            target, arguments = pickle.loads(request)
            module, _, function = target.partition(":")
            return lambda: getattr(importlib.import_module(module), function)(*arguments)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    sys.exit(_asked()())
