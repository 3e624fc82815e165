"""Processes of ``penstock sinks run`` that contend for a lease; tests kill, stop and continue them, and set their wall clocks.

    python -m tests.transports.sinks.contenders FILE

For each line that it reads it forks one, and prints its process number: so that hundreds of kills cost one start of Python.
"""

import os
import random
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Self


class Contenders:
    """The process that forks, as a test has it in its hand.

    Args:
        file: That declares the sinks.
        printed: Where all of them print their errors to.
    """

    def __init__(self, file: Path, printed: Path) -> None:
        self._printed = printed
        self._living: set[int] = set()
        command = [sys.executable, "-m", "tests.transports.sinks.contenders", str(file)]
        with printed.open("ab") as errors:
            self._process = subprocess.Popen(
                command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    @property
    def said(self) -> str:
        """What they have printed."""
        return self._printed.read_text("utf-8", "replace")

    def begin(self) -> int:
        """One more, which is told by its process number."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        number = int(self._process.stdout.readline() or "0")
        assert number, self.said
        self._living.add(number)
        return number

    def kill(self, number: int) -> None:
        """Ends one at once."""
        self._living.discard(number)
        os.kill(number, signal.SIGKILL)

    def check(self) -> None:
        """Fails if one has ended by itself."""
        for number in self._living:
            try:
                os.kill(number, 0)
            except ProcessLookupError:
                raise AssertionError(f"one has ended by itself: {self.said[-2000:]}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._living):
            self.kill(number)
        self._process.kill()
        self._process.communicate()


def _step(chance: random.Random) -> None:
    """Sets the wall clock of this process, by up to a day forth or back, at each SIGUSR1."""
    real, offset = time.time_ns, [0]

    def step(*_: object) -> None:
        offset[0] = chance.randrange(-86_400, 86_400) * 10**9

    time.time_ns = lambda: real() + offset[0]
    signal.signal(signal.SIGUSR1, step)


def main(file: str) -> None:
    """See the module."""
    for module in ("cli.program", "cli.sinks", "sinks.webhook", "sinks.sql_leases"):
        import_module(f"transports.{module}")  # once, and not in each of them
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that nothing is left of those that were killed
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for line in sys.stdin:
        assert line == "run\n"
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code: Any = 1
            try:
                _step(random.Random(os.getpid()))
                os.close(0)
                code = import_module("transports.cli.program").main(["sinks", "run", file])
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.write(1, f"{child}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
