"""Clients of a benchmark in a process of their own, so that their work is not counted."""

import subprocess
import sys
from pathlib import Path
from typing import Self

__all__ = ["ClientProcess"]


class ClientProcess:
    """A module that runs in another process. It writes one line when it is ready, and answers each line with one line.

    Args:
        module: The name of the module.
        arguments: Its command-line arguments.
    """

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        self._answer()

    def ask(self, line: str = "") -> str:
        """Sends a line, and waits for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the clients have died"
        return line

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
