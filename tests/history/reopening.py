"""An owner that closes its log while its threads commit, and opens it again: each commit is answered, or was refused by the close."""

import random
import threading
from pathlib import Path
from typing import Any

from publishers import ChangeLog
from tests.history.record import Recorder
from tests.history.words import orders, say
from tests.history.writers import Writers

__all__ = ["LONGEST", "reopen"]

LONGEST = 0.2
"""Seconds after which the log is closed, at most."""


def reopen(
    path: str,
    history: str,
    life: int,
    seed: int,
    options: dict[str, Any],
    writers: dict[str, int],
    pace: float,
) -> None:
    """Opens and closes the log until it is told to stop."""
    record = Recorder(Path(history))
    chance = random.Random(seed)
    stopping = threading.Event()
    threading.Thread(target=lambda: orders() and stopping.set(), daemon=True).start()
    number = 0
    while not stopping.is_set():
        log = ChangeLog.open(path, **options)
        record("open", visible=log.visible)
        writing = Writers(log, record, number, seed + number, pace)
        writing.start(writers)
        if not number:
            say("open")
        stopping.wait(chance.uniform(0, LONGEST))
        writing.closing.set()
        log.close()
        writing.stop()
        number += 1
    with ChangeLog.open(path, **options) as log:
        record("open", visible=log.visible)
        writing = Writers(log, record, number, seed, pace)
        writing.expose()
        say("stopped", writing.commit(f"h{number}/1000003", durable=True))
        orders()
        say("rested")
        orders()
    say("closed")
