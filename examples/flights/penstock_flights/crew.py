"""The demo's side of the WebSocket clients, which run in processes of their own."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from penstock_flights.plan import Wanted
from penstock_flights.reception import ReceptionPlace

__all__ = ["Remote"]

_LEAVING: Final = 30.0  # seconds; a busy machine needs some


class Remote:
    """One client process: starts it, reads its reports, and sends it commands.

    Attributes:
        wanted: The subscriber that it runs.
        place: Its position and counts, as it last reported.
        state: LIVE or RESYNC, as its server last reported; None before that.
        demand: Changes requested and not yet received.
        error: Why it ended without ``finish``; None if it did not.
    """

    def __init__(self, wanted: Wanted, place: Path, *, step: int) -> None:
        self.wanted = wanted
        self.place = ReceptionPlace.load(place)
        self.state: str | None = None
        self.demand = 0
        self.error: str | None = None
        self._path = place
        self._step = step
        self._finished = False
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread(target=self._listen, name=f"demo-{wanted.name}", daemon=True)

    def start(self, url: str) -> None:
        """Starts the client; a process group of its own keeps the terminal's Ctrl-C away from it."""
        command = [
            sys.executable,
            "-m",
            "penstock_flights.watcher",
            url,
            self.wanted.name,
            str(self._path),
            str(self._step),
        ]
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter and a module of this package
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self._listener.start()

    def tell(self, word: str) -> None:
        """Sends ``hurry`` or ``finish``; has no effect if the client has ended."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(word + "\n")
                self._process.stdin.flush()

    def leave(self) -> None:
        """Waits for the client to end after ``finish``, and kills it if it does not."""
        process = self._process
        if process is None:
            return
        try:
            process.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._listener.join(_LEAVING)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    @property
    def finished(self) -> bool:
        """Whether it has ended after ``finish``, with its position stored."""
        return self._finished

    def _listen(self) -> None:
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            return
        for line in process.stdout:
            self._heard(line)
        complaint = process.stderr.read().strip().splitlines()
        if not self._finished and self.error is None:
            self.error = complaint[-1] if complaint else f"it ended with exit code {process.wait()}"

    def _heard(self, line: str) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if "error" in message:
            self.error = str(message["error"])
            return
        self._finished = bool(message.pop("finished", False))
        self.state, self.demand = message.pop("state"), message.pop("demand")
        self.place = ReceptionPlace.from_json(message) or self.place
