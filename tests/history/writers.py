"""The threads that write in the process that owns the log: each way to commit is a function, and `WAYS` names them all."""

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from publishers import ChangeLog, Mutation, upsert
from publishers.commits.submission import Submission
from publishers.errors import ExpectationFailed, LogClosed, NoSuchVersion, PositionError, PredecessorFailed
from publishers.mutations.mutation import columns_of
from tests.history.record import Recorder, change_id

__all__ = ["REFUSED", "Writers", "first_of", "rows_of"]

REFUSED: Final = (ExpectationFailed, NoSuchVersion, PositionError, PredecessorFailed)
"""What a writer expects beside others that commit, withhold and drop: its transaction was refused, or dropped before it was synced."""
OUTSTANDING: Final = (0, 0, 8)
"""How many submissions a thread leaves unanswered; one of these is drawn each time."""
TASKS: Final = 3
"""Tasks that commit on one loop."""


def first_of(life: int) -> int:
    """The first number of a writer that does not ask the log where it was: those of all lives differ, and rise."""
    return life * 1_000_000


def rows_of(tx: str, size: int) -> list[Mutation]:
    """The changes of a transaction; each tells what it is called."""
    producer = tx.partition("/")[0]
    return [
        upsert(producer, name, {"id": name}) for name in (change_id(tx, place, size) for place in range(size))
    ]


class Writers:
    """The writing threads of one life.

    Args:
        log: What they write to.
        record: Where they write down what they did.
        life: Number of this life.
        seed: Of all chance.
        pace: Mean pause of a thread between two commits, in seconds.

    Attributes:
        stopping: Set to let them end.
        closing: Set before the log is closed under them; then they may be refused.
        failed: What they raised.
    """

    def __init__(self, log: ChangeLog, record: Recorder, life: int, seed: int, pace: float) -> None:
        self.log = log
        self.record = record
        self.life = life
        self.pace = pace
        self.stopping = threading.Event()
        self.closing = threading.Event()
        self.failed: list[str] = []
        self._seed = seed
        self._threads: list[threading.Thread] = []

    def start(self, ways: Mapping[str, int]) -> None:
        """Starts so many threads of each way."""
        numbers = count()
        for way, number in ways.items():
            for _ in range(number):
                name = f"h{self.life}" if way == "withhold" else f"p{next(numbers)}"
                thread = threading.Thread(
                    target=self._guarded, args=(WAYS[way], name), name=f"{way} {name}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Lets them end what they are at. It waits for ever; whoever asked for it looks at the clock, and has their stacks dumped."""
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.failed, self.failed

    def chance(self, name: str) -> random.Random:
        return random.Random(f"{self._seed} {name}")

    def pause(self, chance: random.Random) -> float:
        """Draws a pause; every half second, roughly, a thread makes a large transaction."""
        return chance.uniform(0, 2 * self.pace)

    def rows(self, tx: str, *, visible: bool = True) -> list[Mutation]:
        """Hands in a transaction whose content follows from its name."""
        producer, _, number = tx.partition("/")
        size = (int(number) * 7 + len(producer)) % 5 + 1
        if int(number) % max(97, round(0.5 / self.pace)) == 96:
            size += 300  # over several batches, and above small rings
        self.record("commit?", tx=tx, count=size, hidden=not visible)
        return rows_of(tx, size)

    @contextlib.contextmanager
    def answer(
        self, tx: str, *, refused: tuple[type[Exception], ...] = ()
    ) -> Iterator[Callable[[Any], None]]:
        """Notes how a transaction ended; the errors that are expected end it too."""
        try:
            yield lambda done: self.record("commit!", tx=tx, version=done.version, duplicate=done.duplicate)
        except BaseException as error:
            self.record("commit-", tx=tx, error=type(error).__name__)
            if not isinstance(error, refused):
                raise

    def commit(self, tx: str, **how: Any) -> int:
        """One transaction by ``log.commit``."""
        rows = self.rows(tx, visible=how.get("visible", True))
        with self.answer(tx) as acknowledged:
            done = self.log.commit(rows, **how)
            acknowledged(done)
        return done.version

    def submit(self, tx: str, **how: Any) -> int:
        """One transaction by ``log.submit``."""
        rows = self.rows(tx, visible=how.get("visible", True))
        with self.answer(tx) as acknowledged:
            done = self.log.submit(rows, **how).durable.result()
            acknowledged(done)
        return done.version

    def expose(self) -> None:
        """Publishes what is withheld."""
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

    def _guarded(self, way: "Way", name: str) -> None:
        try:
            way(self, name)
        except LogClosed:
            if not self.closing.is_set():
                self.failed.append(f"{name}: refused as closed by an open log")
        except BaseException as error:
            self.failed.append(f"{name}: {error!r}")
            raise


Way = Callable[[Writers, str], None]


def _numbers(writers: Writers, chance: random.Random, first: int | None = None) -> Iterator[int]:
    """Numbers of transactions with a pause before each, until the writers are to end."""
    for number in count(first_of(writers.life) if first is None else first):
        if writers.stopping.wait(writers.pause(chance)):
            return
        yield number


def _resumed(writers: Writers, name: str) -> Iterator[int]:
    """As `_numbers`, of a producer that goes on where the log says it was."""
    last = writers.log.produced(name)
    first = last.sequence if last else 0  # once more: it may have been acknowledged or not
    return _numbers(writers, writers.chance(name), first)


def produce(writers: Writers, name: str) -> None:
    for number in _resumed(writers, name):
        writers.commit(f"{name}/{number}", producer=(name, number))


def transact(writers: Writers, name: str) -> None:
    for number in _numbers(writers, writers.chance(name)):
        tx = f"{name}/{number}"
        rows = writers.rows(tx)
        with writers.answer(tx) as acknowledged:
            with writers.log.transaction() as transaction:
                transaction.extend(rows)
            acknowledged(transaction.commit)


def expect(writers: Writers, name: str) -> None:
    """Commits that are refused if anything, or a key of another one, was committed meanwhile."""
    chance, log = writers.chance(name), writers.log
    for number in _numbers(writers, chance):
        tx = f"{name}/{number}"
        token: Any = log.token(log.head)
        expected = chance.choice([token, (token, [(name, "nothing has this key")])])
        rows = writers.rows(tx)
        with writers.answer(tx, refused=REFUSED) as acknowledged:
            acknowledged(log.commit(rows, expect=expected))


def columns(writers: Writers, name: str) -> None:
    """As ``ChangeSink`` does: batches of columns, one version, durable under every policy, once per producer and number."""
    for number in _resumed(writers, name):
        tx = f"{name}/{number}"
        rows = writers.rows(tx)
        middle = len(rows) // 2
        batches = (columns_of(part) for part in (rows[:middle], rows[middle:]) if part)
        with writers.answer(tx) as acknowledged:
            acknowledged(
                writers.log.commit_columns(
                    batches, meta={"spark": {"batch": number}}, producer=(name, number), durable=True
                )
            )


def submit(writers: Writers, name: str) -> None:
    chance = writers.chance(name)
    waiting: deque[tuple[str, Submission]] = deque()

    def settle(most: int) -> None:
        while len(waiting) > most:
            tx, submission = waiting.popleft()
            with writers.answer(tx, refused=(*REFUSED, LogClosed)) as acknowledged:
                acknowledged(submission.durable.result())

    try:
        for number in _numbers(writers, chance):
            tx = f"{name}/{number}"
            after = waiting[-1][1] if waiting and chance.random() < 0.3 else None
            rows = writers.rows(tx)
            with writers.answer(tx, refused=(PredecessorFailed,)):
                waiting.append((tx, writers.log.submit(rows, after=after)))
            settle(chance.choice(OUTSTANDING))
    finally:
        settle(0)


def on_a_loop(writers: Writers, name: str) -> None:
    """Tasks of one event loop, half of which commit by ``async with``."""

    async def task(own: str, chance: random.Random) -> None:
        log = writers.log
        for number in count(first_of(writers.life)):
            await asyncio.sleep(writers.pause(chance))
            if writers.stopping.is_set():
                return
            tx = f"{own}/{number}"
            rows = writers.rows(tx)
            with writers.answer(tx) as acknowledged:
                if chance.random() < 0.5:
                    acknowledged(await log.commit_async(rows))
                else:
                    async with log.transaction() as transaction:
                        transaction.extend(rows)
                    acknowledged(transaction.commit)

    async def tasks() -> None:
        names = [f"{name}t{number}" for number in range(TASKS)]
        await asyncio.gather(*(task(own, writers.chance(own)) for own in names))

    asyncio.run(tasks())


def withhold(writers: Writers, name: str) -> None:
    """Withholds a few transactions, and publishes or drops them, and what came behind them with them."""
    chance = writers.chance("withhold")
    number = 0
    writers.expose()  # what the last life left
    while not writers.stopping.wait(chance.expovariate(1.5)):
        versions = []
        for _ in range(chance.randint(1, 3)):
            how = writers.commit if chance.random() < 0.5 else writers.submit
            versions.append(how(f"{name}/{number}", visible=False))
            number += 1
        writers.stopping.wait(chance.uniform(0, 0.1))
        if chance.random() < 0.5:
            writers.call("publish", chance.choice(versions))
        else:
            writers.call("forget", chance.choice(versions) - 1)
        writers.expose()


WAYS: Final[dict[str, Way]] = {
    "produce": produce,
    "transact": transact,
    "expect": expect,
    "columns": columns,
    "submit": submit,
    "on_a_loop": on_a_loop,
    "withhold": withhold,
}
