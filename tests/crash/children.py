"""What the processes run that these tests kill. They import nothing but the log, so a new one starts at once.

Each acknowledged commit is one line on standard output, written with one unbuffered write after the commit returned.
"""

import asyncio
import importlib
import os
import random
import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from publishers import ChangeLog, Position, backups, upsert
from publishers.errors import LogBusy, LogForked
from publishers.wal import Follower, RealFileSystem
from tests.harness.constants import without_bounds
from tests.harness.inside import following_of


def say(*words: object) -> None:
    """One line, in one write."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def rows(producer: str, sequence: int, count: int, weight: int = 0) -> list:
    """Changes that tell where they belong, so that half a transaction is seen."""
    return [
        upsert(producer, f"{sequence}/{place}/{count}", {"fill": "x" * weight} if weight else {})
        for place in range(count)
    ]


def write(path: str, options: dict, threads: int, first: int, total: int = 10**9) -> None:
    """Producers that go on where they were, retrying what they do not know."""
    log = ChangeLog.open(path, **without_bounds(options))
    say("open", log.epoch, log.head.version)

    def produce(number: int) -> None:
        name = f"producer{number}"
        last = log.produced(name)
        sequence = last.sequence if last else first
        for turn in range(total):
            count = (sequence * 7 + number) % 5 + 1
            done = log.commit(rows(name, sequence, count), producer=(name, sequence))
            say("done", name, sequence, done.version, int(done.duplicate), turn)
            sequence += 1

    workers = [threading.Thread(target=produce, args=(number,), daemon=True) for number in range(1, threads)]
    for worker in workers:
        worker.start()
    produce(0)


def stated(path: str, options: dict, seed: int) -> None:
    """A log with its state, and changes of every kind."""
    from tests.harness.entities import some

    chance = random.Random(seed)
    log = ChangeLog.open(path, **without_bounds(options))
    say("open", log.epoch, log.head.version)
    for number in count():
        say("done", log.commit(some(chance, number)).version)


def interrupted(path: str, options: dict, rounds: int) -> None:
    """Opens a log and commits in the main thread and in others until SIGINT, for which nothing is installed; again."""
    sys.unraisablehook = interrupt_again
    for number in range(rounds):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt_once(path, options, number)
        sys.stdin.readline()  # until the parent has seen it


def interrupt_again(dropped: "sys.UnraisableHookArgs") -> None:
    """The interpreter drops what is raised in the callback of a weak reference, interrupts too; so another one comes.

    It comes from another thread, because one that strikes in here would be dropped as well.
    """
    if dropped.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(dropped)


def interrupt_once(path: str, options: dict, life: int) -> None:
    log = ChangeLog.open(path, **without_bounds(options))
    stop = threading.Event()

    def produce(number: int) -> None:
        name, sequence = f"p{life}n{number}", 0
        while not stop.is_set():
            try:
                done = log.commit(rows(name, sequence, 3), producer=(name, sequence))
            except Exception as error:
                say("failed", type(error).__name__, getattr(error, "outcome", "-"))
                return
            say("done", name, sequence, done.version, 0, 0)
            sequence += 1

    workers = [threading.Thread(target=produce, args=(number,)) for number in range(1, 4)]
    try:
        for worker in workers:
            worker.start()
        say("open", log.epoch, log.head.version)
        produce(0)
    except KeyboardInterrupt:
        say("interrupted")
    finally:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    for worker in workers:
        if worker.ident is not None:
            worker.join(60)
        if worker.is_alive():
            say("hangs")
            os._exit(3)
    log.close()
    say("closed")


def deferring(path: str, options: dict) -> None:
    """Commits, withholds, shows and forgets in turn, as fast as it can; what is of type ``secret`` is always forgotten."""
    log = ChangeLog.open(path, **without_bounds(options))
    say("open")
    for number in count(0, 4):
        log.commit(rows("shown", number, 1, 700))
        log.commit(rows("shown", number + 1, 3, 700))
        shown = log.commit(rows("shown", number + 2, 1, 700), visible=False).version
        if number % 3:
            log.commit(rows("secret", number, 2, 700))  # which waits behind it
            log.forget_after(shown - 1)
            log.commit(rows("shown", number + 2, 1, 700))
        else:
            log.commit(rows("secret", number, 2, 700), visible=False)
            log.publish(shown)
            log.forget_after(shown)
        log.commit(rows("shown", number + 3, 2, 700))
        say("round", number)


def killed_backup(path: str, target: str, arguments: list, steps: int) -> None:
    """Runs the command, and dies by SIGKILL when it has put so many files in their place."""
    from transports.cli import main

    class Dying(RealFileSystem):
        __slots__ = ()
        left = steps

        def rename(self, source: Path, other: Path, /) -> None:
            if not Dying.left:
                os.kill(os.getpid(), signal.SIGKILL)
            Dying.left -= 1
            super().rename(source, other)

    backups.RealFileSystem = Dying  # type: ignore[misc]  # what the command uses
    say("code", main(["backup", path, target, *arguments]))


def large(path: str, options: dict, count: int, weight: int) -> None:
    """One small transaction, then large ones of many frames, each announced before it begins."""
    log = ChangeLog.open(path, **without_bounds(options))
    version = log.commit(rows("small", 0, 1)).version
    say("done", "small", 0, version, 0, 0)
    for sequence in range(1000):
        say("begin", sequence)
        done = log.commit(rows("large", sequence, count, weight))
        say("done", "large", sequence, done.version, 0, 0)


class Told:
    """A subscriber that says what it gets."""

    def on_subscribe(self, subscription: object) -> None:
        subscription.request(2**62)  # type: ignore[attr-defined]  # a Subscription

    def on_next(self, change: object) -> None:
        raise AssertionError

    def on_next_batch(self, batch: object) -> None:
        for change in batch:  # type: ignore[attr-defined]  # a Batch
            say("got", change.version, change.index, change.count, change.entity_type, change.key)

    def on_error(self, error: Exception) -> None:
        say("error", repr(error))

    def on_complete(self) -> None:
        say("complete")


def acknowledge(path: str, options: dict, durable: int) -> None:
    """A consumer of a slot in the process that writes; each ``durable``-th acknowledgement is waited for."""
    log = ChangeLog.open(path, **without_bounds(options))
    if "stock" not in log.slots:
        log.slots.create("stock", since="earliest")
    slot = log.slots.open("stock")
    say("open", slot.generation, *slot.position)

    def produce() -> None:
        for number in count(1):
            log.commit(rows("stock", number, 2))

    threading.Thread(target=produce, daemon=True).start()
    for change in slot.changes():
        if change.index + 1 == change.count:
            waited = change.version % durable == 0
            slot.ack(change, durable=waited)
            say("durable" if waited else "acked", change.version + 1)


def share(path: str, options: dict, consumers: int) -> None:
    """Three groups with some consumers each, in the process that writes; every third acknowledgement is waited for."""
    log = ChangeLog.open(path, **without_bounds(options))
    names = ["g0", "g1", "g2"]
    for name in names:
        if name not in log.groups:
            log.groups.create(name, since="earliest", ack_wait=3_600.0)  # however slow the machine

    def consume(name: str, number: int) -> None:
        member = log.groups.join(name, f"consumer{number}")
        for turn in count(number):
            for one in member.read(5, wait=1.0):
                say("did", name, one.change.key, one.change.version)
                member.ack(one, durable=turn % 3 == 0)
                if turn % 3 == 0:
                    say("sure", name, one.change.key, one.change.version)

    for name in names:
        for number in range(consumers):
            threading.Thread(target=consume, args=(name, number), daemon=True).start()
    behind = threading.Event()
    while True:
        while min(log.head.version - log.groups.info(name).floor.version for name in names) > 50:
            behind.wait(0.001)
        log.commit([upsert("order", str(log.head.version % 5), {})])


def labour(url: str, name: str, groups: list) -> None:
    """A consumer of some groups of another process, over the network."""
    from transports import RemoteLog, connect

    async def consume(remote: RemoteLog, group: str) -> None:
        worker = remote.group(group, name)
        async for one in worker.deliveries(window=4):
            say("did", time.monotonic_ns(), group, one.change.key, one.change.version, one.count)
            if await worker.ack(one):
                say("acked", group, one.change.version)

    async def work() -> None:
        async with connect(url) as remote:
            await asyncio.gather(*(consume(remote, group) for group in groups))

    asyncio.run(work())


def follow(path: str, options: dict, user: int | None = None) -> None:
    """Tells everything that another process writes, as another user perhaps; ends at the end of its standard input."""
    if user is not None:
        # He may not see the interpreter's own files, some of which are read when they are first needed.
        for name in ("concurrent.futures.thread", "encodings.ascii"):
            importlib.import_module(name)
        os.setuid(user)
    log = ChangeLog.open(path, read_only=True, **without_bounds(options))
    log.changes(since=Position(1)).subscribe(Told())
    say("open", log.epoch, log.head.version, following_of(log)._listener.kind)
    sys.stdin.read()
    log.close()
    say("closed")


def scrutinise(path: str) -> None:
    """Reads every frame as soon as it may be read, as fast as it can; ends at the end of its standard input."""
    follower = Follower.open(path)
    listener = RealFileSystem().listen(Path(path))
    ended = threading.Event()
    threading.Thread(target=lambda: sys.stdin.read() or ended.set()).start()
    location, version, index, told, rolls = follower.reader.locate(1), 0, 0, 0, 0
    while not ended.is_set():
        listener.wait(0.05)
        visible = follower.refresh()
        while frame := follower.reader.read(location):
            header = frame.header
            assert header.version <= visible == follower.visible, "above the watermark"
            first = bool(header.flags & 1)
            assert first == (header.version == version + 1), (header, version)
            assert header.first_index == (1 if first else index)
            keys = [key.decode() for key in frame.columns.key if key is not None]
            assert len(keys) == header.count
            index = header.first_index + header.count
            if header.flags & 2:
                assert index == header.transaction_count, "half a transaction"
            rolls += frame.next.segment != location.segment
            version, location = header.version, frame.next
        if version > told:
            assert version == visible, "less than the watermark"
            say("read", version, rolls)
            told = version
    listener.close()
    follower.close()
    say("sound", version)


def own(path: str, options: dict) -> None:
    """Tries to be the owner; ends at the end of its standard input."""
    try:
        with ChangeLog.open(path, **without_bounds(options)) as log:
            say("open", log.epoch, log.head.version)
            sys.stdin.read()
    except LogBusy as error:
        say("refused", type(error).__name__, error.pid)


def consume(path: str, name: str, version: int) -> None:
    """Reads through hard links, and releases what it has read; ends at the end of its standard input."""
    try:
        log = ChangeLog.open(path, read_only=True, consumer=name)
    except LogBusy as error:
        say("refused", type(error).__name__, error.pid)
        return
    consumer = Consumer(log)
    log.changes(since=Position(version)).subscribe(consumer)
    say("open", log.oldest.version)
    sys.stdin.read()
    log.close()


class Consumer(Told):
    """Checks that versions follow each other, and releases what it has had."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self.last = 0

    def on_next_batch(self, batch: object) -> None:
        for change in batch:  # type: ignore[attr-defined]  # a Batch
            assert change.version - self.last in (0, 1) or self.last == 0, (change.version, self.last)
            self.last = change.version
        if batch.boundary:  # type: ignore[attr-defined]  # a Batch
            end = batch.end  # type: ignore[attr-defined]  # a Batch
            say("at", end.version)
            if self.log.links.release(end):
                say("released", end.version)


def fork_often(path: str, options: dict, workers: int, loop: str) -> None:
    """Commits and serves, while forked children try what their parent does: those of a pool, and some that live on."""
    import multiprocessing

    from transports import serve

    if loop == "uvloop":
        importlib.import_module("uvloop").install()
    log = ChangeLog.open(path, **without_bounds(options))
    follower = ChangeLog.open(path, read_only=True)
    server = serve(log)
    say("open", server.port, type(server._loop).__module__.split(".")[0])

    def produce(number: int) -> None:
        for sequence in range(10**9):
            count = (sequence * 7 + number) % 5 + 1
            done = log.commit(rows(f"producer{number}", sequence, count))
            say("done", f"producer{number}", sequence, done.version, 0, 0)

    for number in range(2):
        threading.Thread(target=produce, args=(number,), daemon=True).start()
    globals()["INHERITED"] = log, follower, server
    for number in range(10**9):
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            for told in pool.map(try_all, range(workers), chunksize=1):
                say("child", *told)
        if number < workers and not os.fork():
            signal.alarm(300)
            say("lives", os.getpid(), *try_all(number))
            while True:
                signal.pause()


def try_all(_number: int) -> tuple[str, int]:
    """What a child is told that writes, follows and serves what its parent has opened."""
    log, follower, server = globals()["INHERITED"]
    told = set()
    for attempt in (
        lambda: log.commit(rows("child", 0, 1)),
        follower.history,
        log.statistics,
        follower.changes,
    ):
        try:
            attempt()
        except LogForked as error:
            told.add((str(error.path), error.pid))
    server.stop()
    follower.close()
    log.close()
    ((path, owner),) = told
    return path, owner


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*map(eval, arguments))
