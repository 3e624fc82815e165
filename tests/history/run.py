"""A history under faults: real processes over one log, killed and stopped at random, and then judged."""

# ruff: noqa: T201 - what a run has done is there to be read
import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from publishers import ChangeLog, Content, Position
from tests.harness.ports import free_port
from tests.harness.prefork import Server, serving
from tests.history.checker import Report, check
from tests.history.record import History, Recorder
from tests.history.resources import Resources
from tests.history.subscribers import items_of

__all__ = ["Plan", "Run", "play"]

CHILDREN = "tests.history.children"
_SLOW_DISK = re.compile(rb"(?m)^a sync took \S+ s\n")


@dataclass(frozen=True)
class Plan:
    """What runs.

    Attributes:
        seconds: How long the faults last.
        writers: Threads of the owner that commit, by their way (`tests.history.writers.WAYS`).
        outsiders: Those who commit through the owner's server, or read a group of it, by their kind
            (`tests.history.outsiders.KINDS`); without any there is no server.
        reopens: Whether the owner closes the log while its threads commit, and opens it again, all the time; nothing else runs.
        pace: Mean pause of a thread between two commits, in seconds.
        consumers: Whether the owner has a slot and its compacted state.
        sync: The policy; drawn by default.
        witnesses: Subscribers in the tailing process; half as many in the writing one. Without any there is none.
        parties: Connections of clients of a server that tails, each with ``guests`` subscribers; without any there is none.
        guests: As said.
        steady: Whether a second tailing process, which serves too, and its clients are left alive, so that their memory
            and their open files can be watched.
        fault: Mean time between two faults, in seconds; infinite for none.
        victims: Names of the roles that are killed and stopped; all by default.
        kills: How many processes are killed at least, however long that takes.
        acknowledged: How many commits are acknowledged at least, likewise.
        deliveries: How many signals with changes there are at least, likewise.
        options: Of the log, beside those that are drawn.
        on_disk: Whether the log is on a disk, where a sync takes its time, and not in memory.
        patience: Seconds within which the owner stops; then its threads say where they are.
    """

    seconds: float = 20.0
    writers: Mapping[str, int] = field(
        default_factory=lambda: {"produce": 2, "submit": 1, "on_a_loop": 1, "columns": 1, "withhold": 1}
    )
    outsiders: Mapping[str, int] = field(default_factory=dict)
    reopens: bool = False
    pace: float = 0.02
    consumers: bool = False
    sync: str | None = None
    witnesses: int = 10
    parties: int = 4
    guests: int = 3
    steady: bool = False
    fault: float = 0.8
    victims: Collection[str] = ()
    kills: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    on_disk: bool = False
    patience: float = 60.0


class Life:
    """One process, from its start to its end."""

    def __init__(self, server: Server, what: str, arguments: dict[str, Any], errors: Path) -> None:
        self.errors = errors
        self.arguments = arguments
        self.lines: list[list[str]] = []
        self.ended = False
        self._told = threading.Condition()
        with errors.open("wb") as file:
            self.process = server.start(f"{CHILDREN}:begin", what, arguments, streams={2: file.fileno()})
        self.process.stderr.close()  # all of it is in the file
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._told:
                self.lines.append(line.decode().split())
                self._told.notify_all()
        with self._told:
            self.ended = True
            self._told.notify_all()

    def wait_for(self, word: str, timeout: float = 60.0) -> list[str]:
        """Until it says a word, with which a line begins; what follows that."""

        def said() -> list[str] | None:
            return next((line for line in self.lines if line[0] == word), None)

        with self._told:
            self._told.wait_for(lambda: self.ended or said(), timeout)
            found = said()
        if found is None:
            self.dump()
            raise AssertionError(f"no {word} from {self.arguments['history']}: {self.why()}")
        return found[1:]

    def close(self) -> None:
        """Lets go of a process that has ended."""
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # what it was told last and did not read
                pipe.close()

    def dump(self) -> None:
        """Ends a process that hangs, if it has not ended; its threads say where they are, in its file of errors."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()

    def tell(self, order: object) -> None:
        self.process.stdin.write(f"{order}\n".encode())
        self.process.stdin.flush()

    def signal(self, sign: int) -> None:
        self.process.send_signal(sign)

    def why(self) -> str:
        """Its state, and the end of what it wrote to standard error."""
        return f"{self.process.poll()} {self.lines[-3:]} {self.errors.read_text(errors='replace')[-9000:]}"

    def reap(self, expected: int, timeout: float = 60.0) -> None:
        """Waits for its end; anything written to standard error is a fault, but for a disk that is slow."""
        try:
            code = self.process.wait(timeout)
        except AssertionError:
            self.dump()
            raise AssertionError(f"{self.arguments['history']} does not end: {self.why()}") from None
        self.close()
        assert code == expected, f"{self.arguments['history']} ended with {code}: {self.why()}"
        complaints = _SLOW_DISK.sub(b"", self.errors.read_bytes())
        assert not complaints, f"{self.arguments['history']} complained: {self.why()}"


Arguments = Callable[[int, str | None], dict[str, Any]]
"""Those of a process: of the number of its life, and of the history of the life before."""


@dataclass
class Role:
    """A process that is started again whenever it was killed."""

    name: str
    what: str
    arguments: Arguments
    mortal: bool = True
    lives: list[Life] = field(default_factory=list)

    @property
    def life(self) -> Life:
        return self.lives[-1]


class Run:
    """One log, its processes and their histories, in a directory of its own."""

    def __init__(self, seed: int, plan: Plan, place: Path) -> None:
        self.seed = seed
        self.plan = plan
        self.place = place
        self.chance = random.Random(seed)
        self.log = place / "log"
        self.faults: dict[str, int] = {}
        self.resources = Resources()
        draw = self.chance
        drawn_sync = draw.choice(["always", "always", "interval", "os"])
        self.options = {
            "sync": plan.sync or drawn_sync,
            "segment_bytes": 65_536,
            "fill_step": 65_536,
            "retain_bytes": draw.choice([300_000, 2_000_000]),
            "ring_events": draw.choice([4, 64, 1024]),
            "ring_bytes": draw.choice([12_000, 10**6]),
            "spool_bytes": draw.choice([20_000, 10**6]),
            "batch_events": draw.choice([3, 100, 1024]),
            "replay_bytes": draw.choice([20_000, 2_000_000]),
            "head_sync": draw.choice([0.01, 1.0]),
        }
        self.rings = {
            name: self.options[name]
            for name in ("ring_events", "ring_bytes", "spool_bytes", "batch_events", "replay_bytes")
        }
        self.options |= plan.options
        ports = [free_port() for _ in range(4)]
        self.roles = list(self._cast(ports[:2], ports[2:]))

    def _cast(self, tailing: list[int], owning: list[int]) -> Iterator[Role]:
        """All roles: the owner first, and clients behind their servers."""
        plan = self.plan
        if plan.reopens:
            yield Role("writer", "reopen", self._reopener)
            return
        yield Role("writer", "write", self._writer(owning if plan.outsiders else []))
        if plan.outsiders:
            yield Role("outsiders", "outsiders", self._outsiders(*owning))
        if plan.witnesses:
            yield Role("tailer", "follow", self._follower(plan.witnesses, None))
        if plan.parties:
            yield Role("server", "follow", self._follower(0, tailing[0]))
            yield Role("clients", "attend", self._clients(tailing[:1]))
        if plan.steady:
            yield Role("steady", "follow", self._follower(plan.witnesses, tailing[1]), mortal=False)
            yield Role("regulars", "attend", self._clients(tailing[1:]), mortal=False)

    def _writer(self, ports: list[int]) -> Arguments:
        plan = self.plan
        return lambda life, last: {
            "path": str(self.log),
            "life": life,
            "options": self.options,
            "writers": plan.writers,
            "pace": plan.pace,
            "witnesses": max(plan.witnesses // 2, 1) if plan.witnesses else 0,
            "consumers": plan.consumers,
            "ports": ports,
            "last": last,
        }

    def _reopener(self, life: int, _last: str | None) -> dict[str, Any]:
        return {
            "path": str(self.log),
            "life": life,
            "options": self.options,
            "writers": self.plan.writers,
            "pace": self.plan.pace,
        }

    def _outsiders(self, port: int, resp: int) -> Arguments:
        plan = self.plan
        return lambda life, _last: {
            "port": port,
            "resp": resp,
            "life": life,
            "kinds": plan.outsiders,
            "pace": plan.pace,
        }

    def _follower(self, witnesses: int, port: int | None) -> Arguments:
        return lambda life, last: {
            "path": str(self.log),
            "life": f"{'t' if port is None else 's'}{life}",
            "witnesses": witnesses,
            "port": port,
            "options": self.rings,
            "last": last,
        }

    def _clients(self, ports: list[int]) -> Arguments:
        return lambda life, last: {
            "urls": [f"ws://127.0.0.1:{port}/ws" for port in ports],
            "life": f"c{ports[0]}.{life}",
            "parties": self.plan.parties,
            "guests": self.plan.guests,
            "last": last,
        }

    # Its life.

    @property
    def kills(self) -> int:
        """Processes that were killed until now."""
        return sum(count for what, count in self.faults.items() if what.startswith("kill"))

    def start(self, role: Role) -> None:
        number = len(role.lives)
        last = role.life.arguments["history"] if role.lives else None
        history = str(self.place / f"{role.name}.{number}.jsonl")
        seed = self.chance.randrange(1 << 40)
        arguments = {**role.arguments(number, last), "history": history, "seed": seed}
        role.lives.append(Life(self.server, role.what, arguments, self.place / f"{role.name}.{number}.err"))

    def faulty(self) -> None:
        """Kills or stops somebody."""
        chance = self.chance
        role = chance.choice([role for role in self.roles if role.name in self.plan.victims] or self.roles)
        what = chance.choice(["kill", "kill", "kill", "stop"]) if role.mortal else "stop"
        if what == "kill" and role.name == "clients" and chance.random() < 0.5:
            return
        self.faults[f"{what} {role.name}"] = self.faults.get(f"{what} {role.name}", 0) + 1
        if what == "kill":
            role.life.signal(signal.SIGKILL)
            role.life.reap(-signal.SIGKILL)
            _pause(chance.choice([0.0, 0.0, chance.uniform(0, 1.0)]))
            self.start(role)
            if chance.random() < 0.8:  # else it may be killed while it opens
                role.life.wait_for("open")
        else:
            role.life.signal(signal.SIGSTOP)
            _pause(chance.uniform(0, 1.5))
            role.life.signal(signal.SIGCONT)

    def live(self) -> None:
        for role in self.roles:
            self.start(role)
            role.life.wait_for("open")
        deadline = time.monotonic() + self.plan.seconds
        while (left := deadline - time.monotonic()) > 0 or not self._enough():
            fault = self.chance.expovariate(1 / self.plan.fault) if self.plan.fault < inf else inf
            _pause(min(max(left, 0.1), fault))
            for role in self.roles:
                assert role.life.process.poll() is None, f"{role.name} died: {role.life.why()}"
                if not role.mortal:
                    self.resources.sample(role.name, role.life.process.pid)
            if fault < inf:
                self.faulty()

    def _enough(self) -> bool:
        return (
            self.kills >= self.plan.kills
            and self._recorded("commit!") >= self.plan.acknowledged
            and self._recorded("next") >= self.plan.deliveries
        )

    def _recorded(self, event: str) -> int:
        line = f'"e":"{event}"'.encode()
        return sum(path.read_bytes().count(line) for path in self.place.glob("*.jsonl"))

    def settle(self) -> int:
        """Lets everybody come to rest; answers what is visible then."""
        for role in self.roles:
            role.life.wait_for("open")
        lives = [role.life for role in self.roles]
        writers = [role.life for role in self.roles if role.what in ("outsiders", "write", "reopen")]
        for life in reversed(writers):  # those outside have their answers before the owner ends
            life.tell("stop")
            said = life.wait_for("stopped", self.plan.patience)
        visible = int(said[0])
        for life in lives:
            life.tell(visible)
        for life in lives:
            life.wait_for("rested", 600)
        for life in reversed(lives):  # clients before their servers
            life.tell("close")
            life.wait_for("closed", 120)
            life.reap(0)
        return visible

    def dump(self, visible: int) -> Path:
        """The log itself, read by somebody who was not there."""
        path = self.place / "truth.jsonl"
        record = Recorder(path)
        with ChangeLog.open(self.log, read_only=True) as log:
            record("truth", oldest=log.oldest, visible=log.visible)
            if log.visible != visible:
                raise AssertionError(f"{visible} was visible, {log.visible} is")
            since = log.oldest
            while since < Position(visible + 1):
                page = log.history(since=since, limit=1000, content=Content.BODY)
                record("log", items=items_of(page.changes))
                since = page.next
        record.close()
        return path

    def histories(self) -> list[History]:
        """Of all lives, in the order in which they began."""
        return [History(Path(life.arguments["history"])) for role in self.roles for life in role.lives]

    def play(self) -> Report:
        """Everything; raises if a process fails, the report tells of broken promises."""
        with serving(CHILDREN) as self.server:
            try:
                self.live()
                truth = self.dump(self.settle())
            finally:
                for role in self.roles:
                    if role.lives:
                        role.life.dump()  # of all of them: who hangs may wait for another
                        role.life.close()
        report = check([*self.histories(), History(truth)])
        report.counts["kills"] = self.kills
        for text in self.resources.judge():
            report.broken("GROWTH", text)
        return report


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def play(seed: int, plan: Plan, *, keep: bool = False) -> Report:
    """One run in a directory of its own, which is removed unless something is wrong or it is to be kept."""
    shared = None if plan.on_disk or not os.path.isdir("/dev/shm") else "/dev/shm"
    place = Path(mkdtemp(prefix="penstock-history-", dir=shared))
    run = Run(seed, plan, place)
    started = time.monotonic()
    try:
        report = run.play()
    except BaseException as error:
        error.add_note(f"seed {seed}, histories in {place}")
        raise
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(report.counts.items()))
    print(f"T12: seed {seed}, {time.monotonic() - started:.0f} s, {run.options['sync']}: {counts}")
    if run.faults:
        print(f"T12: {', '.join(f'{count} x {what}' for what, count in sorted(run.faults.items()))}")
    for line in run.resources.lines():
        print(f"T12: {line}")
    if report.violations:
        for violation in report.violations:
            print(violation)
        print(f"the histories are in {place}")
    elif not keep:
        shutil.rmtree(place)
    return report
