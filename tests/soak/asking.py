"""Processes of clients, which obey lines on their standard input and answer with lines of JSON."""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["asking", "obey"]


@contextmanager
def asking(module: str, arguments: dict[str, Any]) -> Iterator[tuple[Any, int]]:
    """Runs a module; gives what asks it, words in and an answer out, and its process id. The process is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    given, told = process.stdin, process.stdout

    def ask(*words: object) -> Any:
        given.write(" ".join(map(str, words)) + "\n")
        given.flush()
        line = told.readline()
        assert line, f"{module} has died"
        return json.loads(line)

    try:
        yield ask, process.pid
    finally:
        process.kill()
        process.wait()
        given.close()
        told.close()


async def obey(obeys: object) -> None:
    """In such a process: calls the methods of an object by what it is told, until standard input ends."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    while line := await asyncio.to_thread(sys.stdin.readline):
        command, *rest = line.split()
        answer = await getattr(obeys, command)(*map(json.loads, rest))
        print(json.dumps(answer), flush=True)  # noqa: T201 - what this process is for
