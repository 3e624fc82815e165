"""A WebSocket client of the demo, in a process of its own: ``python -m penstock_flights.watcher URL NAME PLACE STEP``.

It reports on standard output, one JSON object a line, and reads commands from standard input:

``hurry``
    Read at full speed from now on.
``finish``
    Store the position, report a last time, and exit.

The end of standard input means that the demo has ended, perhaps killed. Then the client exits at once and writes nothing, since
another run of the demo may already use its file.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock_cdc import Backoff, Change, Content, connect
from penstock_cdc.errors import PenstockError
from penstock_cdc.flow import Subscription
from penstock_cdc.types import RemoteLog, RemoteSubscription
from penstock_flights.plan import LOG, SUBSCRIBERS, Wanted
from penstock_flights.reception import Reception

__all__ = ["Watcher"]

_WINDOW: Final = 4096
_MESSAGE_EVENTS: Final = 512
_TICK: Final = 0.1  # seconds between two reports
# Ticks between two requests of a slow subscriber: long enough for the server to report its state.
_DAWDLE: Final = 8
# A slow subscriber requests more once the log has three times as many versions as it has received: it lags even a slow Spark.
_LAG: Final = 3
_HEARTBEAT: Final = 0.5  # seconds
# The client reconnects to a live server within a second or two; it gives up if the server is dead.
_PATIENCE: Final = Backoff(first=0.1, limit=1.0, attempts=6)


class Watcher:
    """The subscriber of this process.

    Args:
        wanted: Its criteria and speed.
        reception: Counts the changes that it receives.
        step: The changes of one request while it is slow.
    """

    def __init__(self, wanted: Wanted, reception: Reception, *, step: int) -> None:
        self.reception = reception
        self.finished = asyncio.Event()
        self.error: Exception | None = None
        self._wanted = wanted
        self._step = step
        self._slow = wanted.slow
        self._demand = 0
        self._ticks = 0
        self._subscription: RemoteSubscription | None = None

    def subscribe(self, log: RemoteLog) -> None:
        """Subscribes at its stored position, or at the beginning of the log."""
        cursor = self.reception.place.cursor
        feed = log.changes(
            self._wanted.criterion,
            since="earliest" if cursor is None else cursor,
            content=Content.BODY,
            log=LOG,
            window=_WINDOW,
            batch_events=_MESSAGE_EVENTS,
            heartbeat=_HEARTBEAT,
        )
        feed.subscribe(self)

    def obey(self, word: str) -> None:
        """Executes a command of the demo."""
        if word == "hurry":
            self._slow = False
            self._ask()
        elif word == "finish":
            self.finished.set()

    def tick(self) -> None:
        """Reads the state that the server last reported; makes one small request if the subscriber is slow."""
        subscription = self._subscription
        if subscription is None:
            return
        if subscription.state is not None:
            self.reception.observe(subscription.state)
        if subscription.cursor is not None:
            self.reception.reach(subscription.cursor)
        if self._slow and not self._demand and self._ticks % _DAWDLE == 0 and self._lags(subscription):
            self._request(self._step)
        self._ticks += 1

    def report(self, **more: Any) -> str:
        """One line of the reports to the demo."""
        status = self.reception.place.to_json() | {"state": self.reception.state, "demand": self._demand}
        return json.dumps(status | more)

    def _lags(self, subscription: RemoteSubscription) -> bool:
        """Whether it lags enough for another request: however slow the machine is, the ring must overtake it."""
        live = subscription.live
        return live is None or self.reception.place.last.version * _LAG <= live

    def _ask(self) -> None:
        """Keeps the demand between half a window and a whole window."""
        if self._subscription is not None and not self._slow and self._demand * 2 <= _WINDOW:
            self._request(_WINDOW - self._demand)

    def _request(self, n: int) -> None:
        if self._subscription is not None:
            self._demand += n
            self._subscription.request(n)

    # Signals, on the event loop.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Requests the first changes."""
        if isinstance(subscription, RemoteSubscription):
            self._subscription = subscription
        self._ask()

    def on_next(self, change: Change, /) -> None:
        """Never called: this subscriber takes batches."""
        raise TypeError(f"a watcher takes batches, not {change!r}")

    def on_next_batch(self, changes: Sequence[Change], /) -> None:
        """Adds a batch, and requests more when half of the window is used."""
        self._demand -= len(changes)
        subscription = self._subscription
        if subscription is None or subscription.cursor is None:
            raise TypeError("changes came before a subscription that knows where it is")
        try:
            self.reception.take(changes, subscription.cursor)
        except OSError as error:
            subscription.cancel()
            self.on_error(error)
        else:
            self._ask()

    def on_error(self, error: Exception, /) -> None:
        """Ends the program."""
        self.error = error
        self.finished.set()

    def on_complete(self) -> None:
        """Ends the program: the log was closed, and the server is about to stop."""
        self.finished.set()


async def _listen(watcher: Watcher) -> None:
    loop = asyncio.get_running_loop()
    words = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    while line := await words.readline():
        watcher.obey(line.decode().strip())
    os._exit(1)  # the demo that started this process has ended


async def _watch(url: str, watcher: Watcher) -> None:
    listening = asyncio.create_task(_listen(watcher))
    async with connect(url, reconnect=_PATIENCE) as log:
        watcher.subscribe(log)
        while not watcher.finished.is_set():
            watcher.tick()
            print(watcher.report(), flush=True)
            try:
                await asyncio.wait_for(watcher.finished.wait(), _TICK)
            except TimeoutError:
                continue
    listening.cancel()
    if watcher.error is not None:
        raise watcher.error
    watcher.reception.save()
    print(watcher.report(finished=True), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs one client until it reads ``finish``."""
    url, name, place, step = arguments
    # Ctrl-C reaches every process of the terminal; only the demo reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wanted = next(one for one in SUBSCRIBERS if one.name == name)
    try:
        watcher = Watcher(wanted, Reception(Path(place)), step=int(step))
        asyncio.run(_watch(url, watcher))
    except BrokenPipeError:
        return 1
    except (PenstockError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
