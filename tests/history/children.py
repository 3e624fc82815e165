"""The processes of a history: who writes, who tails and serves, and clients that are attached over WebSockets.

Each gets its arguments as JSON, obeys lines on standard input, and says on standard output what the parent waits for.
"""

import json
import logging
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from publishers import ChangeLog, upsert
from publishers.errors import NotALog
from tests.history.record import Recorder, change_id
from tests.history.subscribers import Company, last_places


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def orders() -> str:
    """The next line of the parent; without one he is gone, and so is this process."""
    line = sys.stdin.readline()
    if not line:
        os._exit(9)
    return line


class Writer:
    """Producers that go on where they were, and one who withholds, publishes and drops."""

    def __init__(self, log: ChangeLog, record: Recorder, life: int, seed: int, pace: float) -> None:
        self.log = log
        self.record = record
        self.life = life
        self.seed = seed
        self.pace = pace
        self.stopping = threading.Event()
        self.failed: list[str] = []

    def commit(self, tx: str, **how: Any) -> int:
        """One transaction whose content follows from its name."""
        producer, _, number = tx.partition("/")
        size = (int(number) * 7 + len(producer)) % 5 + 1
        if int(number) % 97 == 0:
            size += 300  # over several batches, and above small rings
        ids = [change_id(tx, place, size) for place in range(size)]
        self.record("commit?", tx=tx, count=size, hidden=not how.get("visible", True))
        try:
            done = self.log.commit([upsert(producer, name, {"id": name}) for name in ids], **how)
        except BaseException as error:
            self.record("commit-", tx=tx, error=type(error).__name__)
            raise
        self.record("commit!", tx=tx, version=done.version, duplicate=done.duplicate)
        return done.version

    def produce(self, number: int) -> None:
        name = f"p{number}"
        chance = random.Random(f"{self.seed} {name}")
        last = self.log.produced(name)
        sequence = last.sequence if last else 0  # once more: it may have been acknowledged or not
        while not self.stopping.wait(chance.expovariate(1 / self.pace)):
            self.commit(f"{name}/{sequence}", producer=(name, sequence))
            sequence += 1

    def withhold(self) -> None:
        chance = random.Random(f"{self.seed} withhold")
        number = 0
        self.expose()  # what the last life left
        while not self.stopping.wait(chance.expovariate(1.5)):
            versions = []
            for _ in range(chance.randint(1, 3)):
                versions.append(self.commit(f"h{self.life}/{number}", visible=False))
                number += 1
            self.stopping.wait(chance.uniform(0, 0.1))
            if chance.random() < 0.5:
                self.call("publish", chance.choice(versions))
                self.expose()
            else:
                self.call("forget", chance.choice(versions) - 1)
                self.expose()

    def expose(self) -> None:
        while (withheld := self.log.withheld) is not None:
            self.call("publish", withheld[-1])

    def call(self, what: str, version: int) -> None:
        self.record(f"{what}?", version=version)
        try:
            (self.log.publish if what == "publish" else self.log.forget_after)(version)
        except BaseException:
            self.record(f"{what}-", version=version)
            raise
        self.record(f"{what}!", version=version)

    def guarded(self, body: Any, *args: Any) -> None:
        try:
            body(*args)
        except BaseException as error:
            self.failed.append(repr(error))
            raise


def write(
    path: str,
    history: str,
    life: int,
    seed: int,
    options: dict[str, Any],
    producers: int,
    pace: float,
    witnesses: int,
) -> None:
    record = Recorder(Path(history))
    log = ChangeLog.open(path, **options)
    record("open", visible=log.visible)
    writer = Writer(log, record, life, seed, pace)
    company = Company(log, record, f"w{life}", seed)
    company.fill(witnesses, {})
    bodies: list[Any] = [(writer.produce, number) for number in range(producers)] + [(writer.withhold,)]
    threads = [threading.Thread(target=writer.guarded, args=body, daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    say("open")
    orders()
    writer.stopping.set()
    for thread in threads:
        thread.join()
    assert not writer.failed, writer.failed
    writer.expose()
    # Under every policy this one is synced, and with it all that lies before it is visible.
    say("stopped", writer.commit(f"h{life}/1000003", durable=True))
    company.rest(int(orders()), 30)
    log.close()
    company.close()
    say("closed")


def follow(
    path: str,
    history: str,
    life: str,
    seed: int,
    witnesses: int,
    port: int | None,
    options: dict[str, Any],
    last: str | None,
) -> None:
    """Tails the log for subscribers of its own, and serves it if there is a port."""
    record = Recorder(Path(history))
    log = opened(path, options)
    company = Company(log, record, life, seed) if witnesses else None
    if company is not None:
        company.fill(witnesses, last_places(Path(last)) if last else {})
    server = None
    if port is not None:
        from transports import serve

        server = serve(log, port=port)
    say("open")
    visible = int(orders())
    if company is not None:
        company.rest(visible, 30)
    say("rested")
    orders()
    if server is not None:
        server.stop()
    log.close()
    if company is not None:
        company.close()  # whose executors the last signals need
    say("closed")


def opened(path: str, options: dict[str, Any]) -> ChangeLog:
    """Opens the log to follow it, as soon as there is one."""
    pause = threading.Event()
    for _ in range(200):
        try:
            return ChangeLog.open(path, read_only=True, **options)
        except NotALog as error:
            last = error
            pause.wait(0.05)
    raise last


if __name__ == "__main__":
    logging.getLogger("penstock.losses").setLevel(logging.ERROR)  # what retention takes is in the histories
    arguments = json.loads(sys.argv[2])
    if sys.argv[1] == "attend":
        from tests.history.clients import attend

        attend(**arguments)
    else:
        {"write": write, "follow": follow}[sys.argv[1]](**arguments)
