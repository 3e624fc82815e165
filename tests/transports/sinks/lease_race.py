"""Two processes with one lease that are killed, stopped and lied to about the time, and what their receiver saw."""

import json
import os
import random
import re
import signal
import threading
from pathlib import Path
from typing import Any

from publishers import Area, ChangeLog, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.contenders import Contenders
from tests.transports.sinks.receivers import OK, Receiver

__all__ = ["LeaseRace"]

TERM = 1.0  # seconds that the lease lasts
BATCH = 4
PER_BLOW = 60  # transactions
PAUSE = threading.Event()


class FencingReceiver:
    """Takes batches, but for those of a sender of which it knows that it was replaced; a while passes until it answers.

    Attributes:
        accepted: Of each batch in the order in which they were taken its epoch, and the positions of its changes.
        refused: Those of a sender that was replaced.
        quick: Whether it answers at once.
    """

    def __init__(self, chance: random.Random) -> None:
        self.accepted: list[tuple[int, list[tuple[int, int]]]] = []
        self.refused: list[tuple[int, int]] = []
        self.quick = False
        self._chance, self._lock = chance, threading.Lock()

    def __call__(self, request: Any) -> Any:
        if len(request.body) < int(request.headers["content-length"]):
            return "reset"  # it was killed while it sent
        batch, epoch = json.loads(request.body), int(request.headers["penstock-epoch"])
        with self._lock:
            newest = self.accepted[-1][0] if self.accepted else 0
            if epoch < newest:
                self.refused.append((epoch, newest))
                return 409, {}, b"replaced"
            places = [(one["version"], one["index"]) for one in batch["changes"]]
            self.accepted.append((epoch, places))
        if not self.quick:
            PAUSE.wait(self._chance.uniform(0.0, 0.03))
        return OK


class LeaseRace:
    """A log that is full from the beginning, and two that carry it to a receiver.

    Args:
        folder: For all of it.
        lease: What the file of sinks says of the lease.
        blows: How many kills, stops and steps of the clock there are to be.
        seed: Of what happens when.
    """

    def __init__(self, folder: Path, lease: str, blows: int, seed: int = 1) -> None:
        self._folder, self._blows = folder, blows
        self._chance = random.Random(seed)
        self.expected = self._filled()
        self.receiver = FencingReceiver(self._chance)
        self._lease = lease

    def _filled(self) -> list[tuple[int, int]]:
        with ChangeLog.open(self._folder / "log", sync="os") as log:
            for _ in range(PER_BLOW * (self._blows + 1)):
                keys = range(self._chance.randint(1, 6))
                log.commit([upsert("order", str(key), {"n": key}) for key in keys])
            found = log.history(None, "earliest", 10**6).changes
            return [(one.version, one.index) for one in found if one.area is Area.DATA]

    def run(self) -> None:
        """Does it all, and judges."""
        with Receiver() as http:
            http.otherwise = self.receiver
            file = self._folder / "sinks.toml"
            file.write_text(
                f'log = "log"\nlease = {{ {self._lease}, seconds = {TERM}, every = 0.2, margin = 0.2 }}\n[[sinks]]\n'
                f'name = "hook"\nkind = "webhook"\nurl = "http://127.0.0.1:{http.port}/"\nallow = ["127.0.0.0/8"]\n'
                f'entity_types = ["order"]\nstart = "earliest"\nbatch_changes = {BATCH}\nlinger = 0.0\nstore_every = 0.0\n'
                "retry = { first = 0.05, limit = 0.2 }\n"
            )
            with Contenders(file, self._folder / "printed.txt") as contenders:
                self._strike(contenders)
                self.receiver.quick = True
                while self._reached != self.expected[-1]:  # many blows leave much: as long as something comes
                    wait_until(
                        lambda before=self._reached: self._reached > before,
                        lambda: self._state(contenders),
                        120,
                    )
        self._judge(contenders.said)

    @property
    def _reached(self) -> tuple[int, int]:
        accepted = self.receiver.accepted
        return accepted[-1][1][-1] if accepted else (0, 0)

    def _state(self, contenders: Contenders) -> Any:
        contenders.check()
        return self._reached, contenders.said[-1500:]

    def _strike(self, contenders: Contenders) -> None:
        two = [contenders.begin(), contenders.begin()]
        for number in range(self._blows):
            taken = len(self.receiver.accepted)
            wait_until(
                lambda before=taken: (
                    len(self.receiver.accepted) > before + 1 or self._reached == self.expected[-1]
                ),
                lambda: self._state(contenders),
            )
            contenders.check()
            if number % 8 == 0:  # the holder is one of them, so another one has to gain the lease
                for which in range(2):
                    contenders.kill(two[which])
                    two[which] = contenders.begin()
                continue
            which, blow = self._chance.randrange(2), self._chance.random()
            if blow < 0.5:
                contenders.kill(two[which])
                two[which] = contenders.begin()
            elif blow < 0.8:
                os.kill(two[which], signal.SIGSTOP)
                PAUSE.wait(self._chance.uniform(0.0, 1.5 * TERM))
                os.kill(two[which], signal.SIGCONT)
            else:
                os.kill(two[which], signal.SIGUSR1)

    def _judge(self, said: str) -> None:
        order = {one: place for place, one in enumerate(self.expected)}
        reached = flying = 0  # how far it is, and where the batch begins that came last for the first time
        sender, behind = 0, 0
        for epoch, places in self.receiver.accepted:
            numbers = [order[one] for one in places]
            first, last = numbers[0], numbers[-1]
            assert numbers == list(range(first, last + 1))
            assert first <= reached, f"{places[0]} came before {self.expected[reached]}"
            if epoch == sender:
                assert first == behind, f"{places[0]} came again from the same sender"
            assert first >= flying, f"{places[0]} came again, which was not in flight"
            if last >= reached:
                reached, flying = last + 1, first
            sender, behind = epoch, last + 1
        assert reached == len(self.expected)
        holders: dict[str, str] = {}
        for epoch, holder in re.findall(r"running hook of log, epoch (\d+), as (\S+)", said):
            # A holder whose renewal was answered late has stopped meanwhile, and continues in the same epoch.
            assert holders.setdefault(epoch, holder) == holder, f"two processes have gained epoch {epoch}"
        assert len(holders) > self._blows // 8, said[-2000:]
