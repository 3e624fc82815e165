"""What a child of ``fork`` can do with what its parent has opened: nothing, and the parent notices nothing of it."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

import flow
from penstock_cdc.errors import InvalidTransactionState, LogBusy, LogForked
from publishers import ChangeLog, ChangeStore, LogOptions, Position, upsert
from publishers.mutations.mutation import columns_of, schema
from publishers.wal.checks import Verdict, verify
from tests.forking import child, fork, in_child, threads
from tests.harness.inside import files_of, lock_of, peers_of, schemas_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, Probe, fill, order, wait_until
from tests.simulation.filesystem import SimulatedFileSystem

# HEAD is not written between two looks at the files.
STILL = {**QUICK, "head_sync": 3600.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


@pytest.fixture(params=["owner", "follower"])
def inherited(request, path):
    """An opening with something in the log, and with a subscriber."""
    with ChangeLog.open(path, **STILL) as owner:
        fill(owner, 3)
        if request.param == "owner":
            yield owner
        else:
            with ChangeLog.open(path, read_only=True) as follower:
                yield follower


def snapshot(path):
    """Every file below a directory, with what is in it; but not BELL, which the parent's housekeeping may write."""
    return {
        str(file.relative_to(path)): file.read_bytes() if file.is_file() else None
        for file in sorted(path.rglob("*"))
        if file.name != "BELL"
    }


def descriptors(path):
    """What of a directory, and which sockets and watches, this process has open or mapped."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line]
    return [one for one in found + mapped if one.startswith((str(path), "socket:", "anon_inode:inotify"))]


def refused(*calls):
    """The errors of calls each of which is refused, as path and process."""
    found = set()
    for call in calls:
        with pytest.raises(LogForked) as caught:
            call()
        found.add((str(caught.value.path), caught.value.pid))
    return found


def test_a_child_writes_nothing_and_nothing_acknowledged_is_lost(path):
    """F143: both would write into the same place of the same segment, and give the same versions twice."""
    mine = os.getpid()
    with ChangeLog.open(path) as log:
        fill(log, 2)

        def run():
            with pytest.raises(
                LogForked, match=f"opened in process {mine}; open it here with read_only=True"
            ):
                log.commit([order("child")])
            return refused(lambda: log.commit([order(n) for n in range(3)]))

        assert in_child(run) == {(str(path), mine)}
        acknowledged = [log.commit([order(number)]).version for number in range(20)]
    with ChangeLog.open(path) as log:
        found = {change.version: change.key for change in log.history(since=Position(3), limit=1000).changes}
        assert [found[version] for version in acknowledged] == [str(number) for number in range(20)]
        assert log.head.version == 23
    assert verify(path).verdict is Verdict.SOUND


def test_a_child_is_refused_whatever_it_asks_of_what_it_has_inherited(inherited, path):
    """F143: writers and followers, with path and process."""
    log, feed, key = inherited, inherited.changes(), inherited.token(Position(2))
    probe = Probe(first=1)
    feed.subscribe(probe, executor=flow.INLINE)
    named = log.statistics().subscriptions[0].id

    def run():
        late = Probe(first=1)
        feed.subscribe(late, executor=flow.INLINE)
        assert isinstance(late.error, LogForked)
        assert isinstance(late.error, flow.Forked), "the word for it in flow"
        assert log.closed
        assert repr(log)
        assert log.head == Position(4), "what is known at the fork stays known"
        asked = refused(
            lambda: log.commit([order(1)]),
            lambda: log.commit_columns([]),
            lambda: asyncio.run(log.commit_async([order(1)])),
            log.transaction,
            lambda: log.publish(1),
            lambda: log.forget_after(1),
            lambda: log.produced("me"),
            log.changes,
            lambda: log.changes(since="earliest"),
            log.history,
            lambda: log.schema("order"),
            log.schemas,
            lambda: log.hold("slot"),
            lambda: log.token(Position(1)),
            lambda: log.position_of(key),
            lambda: log.position_at(datetime.now(UTC)),
            lambda: log.time_of(1),
            log.statistics,
            lambda: log.serving.admit(threading.Event(), 1.0),
            lambda: log.pause(named),
            lambda: log.resume(named),
            lambda: log.seek(named, "earliest"),
            lambda: log.unsubscribe(named),
            lambda: log.links.add("x"),
            lambda: log.links.release(Position(1)),
            lambda: probe.subscription.request(1),
            lambda: probe.subscription.seek(Position(1)),
        )
        feed.close()
        probe.subscription.cancel()
        log.close()
        return asked

    # Other threads may be the holders of any of these at that moment.
    with log._closing, lock_of(feed), lock_of(probe.subscription.drain):
        assert in_child(run) == {(str(path), os.getpid())}
    assert log.statistics().subscriptions[0].id == named
    assert not probe.terminals


def test_leaving_and_closing_in_a_child_does_nothing(inherited, path):
    """F143: ``with`` blocks unwind in a child too; neither a file nor the name of a socket changes."""
    before = snapshot(path)

    def run():
        inherited.__exit__(None, None, None)
        inherited.close()
        gc.collect()
        return descriptors(path)

    assert in_child(run) == []
    assert snapshot(path) == before
    fresh = inherited.changes(since="earliest")
    with flow.iter_blocking(fresh) as changes:
        assert next(changes).version == 1


def test_a_transaction_that_is_left_in_a_child_raises_and_writes_nothing(path):
    """F143."""
    with ChangeLog.open(path, **STILL) as log:
        with log.transaction() as transaction:
            transaction.upsert("order", "1", {})

            def run():
                transaction.upsert("order", "2", {})
                with pytest.raises(LogForked):
                    transaction.__exit__(None, None, None)
                with pytest.raises(InvalidTransactionState):
                    _ = transaction.commit
                return True

            assert in_child(run)
        assert transaction.commit.version == 1
        assert [change.key for change in log.history().changes] == [None, "1"]


def test_a_child_may_follow_what_its_parent_writes_and_not_write_it(path):
    """F143: what the child opens itself is its own."""
    with ChangeLog.open(path, **STILL) as log:
        fill(log, 2)

        def run():
            with pytest.raises(LogBusy) as caught:
                ChangeLog.open(path)
            with (
                ChangeLog.open(path, read_only=True) as mine,
                flow.iter_blocking(mine.changes(since=Position(1))) as changes,
            ):
                keys = [next(changes).key for _ in range(6)]
            return caught.value.pid, keys

        with child(run) as forked:
            log.commit([order("later")])
            assert forked.result() == (os.getpid(), [None, "0", None, "0", None, "later"])


def test_the_lock_goes_with_the_parent_although_children_live(path):
    """F143: a lock lasts as long as any copy of its descriptor."""
    log = ChangeLog.open(path, **STILL)
    fill(log, 1)
    with child(signal.pause):
        log.close()
        with ChangeLog.open(path, **STILL) as again:
            assert again.head == Position(2)


def test_a_file_that_is_being_closed_gives_its_lock_to_no_child(path):
    """F143: a child that is forked between the two steps of closing has a descriptor of which it knows nothing."""
    log = ChangeLog.open(path, **STILL)
    lock = lock_of(peers_of(files_of(log)))
    copy = os.dup(lock._fd)
    log.close()
    with ChangeLog.open(path, **STILL):
        pass
    os.close(copy)


def test_an_iterator_over_a_log_raises_in_a_child(path):
    """F143."""
    with ChangeLog.open(path, **STILL) as log, flow.iter_blocking(log.changes(since=Position(1))) as changes:
        fill(log, 1)
        assert next(changes).version == 1

        def run():
            with pytest.raises(flow.Forked):
                list(changes)
            changes.close()
            return True

        assert in_child(run)
        assert next(changes).key == "0"


def test_a_hold_cannot_be_moved_by_a_child(path):
    """F143: to release it there, as a ``finally`` would, does nothing."""
    with ChangeLog.open(path, **STILL) as log:
        fill(log, 3)
        hold = log.hold("slot", Position(1))

        def run():
            hold.release()
            return refused(lambda: hold.move(Position(2)))

        with lock_of(hold._holds):
            assert in_child(run) == {(str(path), os.getpid())}
        assert hold.state.value != "released"
        hold.release()


def commit_across_a_fork(log, path, first, rest):
    """Commits changes between which the process forks, in both processes; answers with what the parent's call has returned.

    The child's call has to end in `LogForked`, and to leave every file as it was.
    """
    forked: list[int] = []

    def batches():
        yield from ([columns_of([change])] for change in first)
        before = snapshot(path)
        receiving, sending = os.pipe()
        forked.extend((fork(), sending))
        if forked[0]:
            os.close(sending)
            assert os.read(receiving, 1000) == b"LogForked"
            os.close(receiving)
            os.waitpid(forked[0], 0)
            assert snapshot(path) == before
        yield from ([columns_of([change])] for change in rest)

    try:
        return log.commit_columns(batch for one in batches() for batch in one)
    except BaseException as error:
        if forked and not forked[0]:
            os.write(forked[1], type(error).__name__.encode())
        raise
    finally:
        if forked and not forked[0]:
            os._exit(0)


def large(*numbers):
    return [upsert("order", str(number), {"fill": "x" * 4096}) for number in numbers]


@pytest.mark.parametrize("before", [1, 10])
def test_a_fork_among_the_changes_of_a_commit_commits_them_once(path, before):
    """F143: also if some of them lie in a spool file by then, which the parent still needs."""
    with ChangeLog.open(path, **STILL, spool_bytes=8192) as log:
        done = commit_across_a_fork(log, path, large(*range(before)), large(*range(before, 20)))
        assert (done.version, done.changes) == (1, 21)
        assert [change.key for change in log.history().changes] == [None, *map(str, range(20))]
    assert not list(path.glob("*.tmp"))
    assert verify(path).verdict is Verdict.SOUND


def test_a_fork_among_the_changes_of_a_commit_tells_a_schema_once(path):
    """F143."""
    with ChangeLog.open(path, **STILL) as log:
        done = commit_across_a_fork(log, path, large(1), [schema("order", {"type": "struct"}), *large(2)])
        assert (done.version, done.changes) == (1, 4)
        assert log.schemas() == {"order": (1,)}


def test_a_fork_among_the_changes_of_a_commit_does_not_wait_for_one_of_the_parent_that_tells_schemas(path):
    """F143: that one will never end there."""
    held, go = threading.Event(), threading.Event()

    def hold(log):
        with schemas_of(log).turn:
            held.set()
            assert go.wait(60)

    def rest():
        go.set()
        yield from [schema("order", {"type": "struct"}), *large(2)]

    with ChangeLog.open(path, **STILL) as log:
        thread = threading.Thread(target=hold, args=(log,))
        thread.start()
        assert held.wait(60)
        done = commit_across_a_fork(log, path, large(1), rest())
        thread.join(60)
        assert (done.version, done.changes) == (1, 4)
        assert log.schemas() == {"order": (1,)}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_and_its_logs_are_refused_in_a_child(tmp_path, read_only):
    """F143."""
    path = tmp_path / "shop"
    with ChangeStore.open(path, **STILL) as owner:
        fill(owner.create("orders"), 1)
        owner.create("users")
        opened = ChangeStore.open(path, read_only=True, **STILL) if read_only else owner
        orders, system, before = opened["orders"], opened.system, snapshot(path)

        def run():
            assert refused(orders.statistics) == {(str(path / "orders"), os.getppid())}
            assert refused(system.statistics) == {(str(path / ".system"), os.getppid())}
            assert repr(opened)
            assert not opened.opened()
            assert opened.peek("orders") is None
            asked = refused(
                lambda: opened["orders"],
                lambda: opened.log("users"),
                lambda: opened.create("more"),
                lambda: opened.drop("orders"),
                lambda: opened.rename("orders", "sales"),
                lambda: opened.retype("orders", type="x"),
                lambda: opened.entry("orders"),
                opened.names,
                lambda: len(opened),
                lambda: "orders" in opened,
                opened.open_all,
                opened.refresh,
            )
            opened.close()
            with ChangeStore.open(path, read_only=True) as mine:
                assert mine.names() == ["orders", "users"]
                assert mine["orders"].head == Position(2)
            with pytest.raises(LogBusy):
                ChangeStore.open(path)
            return asked, descriptors(path)

        with (
            ThreadPoolExecutor(1) as other,
            opened._logs.lock,
        ):  # held by another thread than the one that forks
            assert other.submit(in_child, run).result() == ({(str(path), os.getpid())}, [])
        assert snapshot(path) == before
        fill(opened["orders"] if not read_only else owner["orders"], 1)
        if read_only:
            wait_until(lambda: orders.head == Position(3))
            opened.close()


def test_children_that_are_forked_during_commits_never_hang(path):
    """F143: at any moment threads hold any lock of the log, and the child has none of these threads."""
    sequence = iter(range(10**9))
    with ChangeLog.open(path, **STILL, segment_bytes=65_536, retain_bytes=200_000) as log:
        reader = ChangeLog.open(path, read_only=True)
        seen = Probe(first=10**9)
        reader.changes().subscribe(seen)
        log.changes().subscribe(Probe(first=10**9), executor=flow.INLINE)
        log.changes().subscribe(slow := Probe())

        def write():
            log.commit([order(next(sequence)) for _ in range(3)])

        def look():
            log.statistics()
            log.history(limit=10, reverse=True)
            slow.subscription.request(1)

        def run():
            asked = refused(
                lambda: log.commit([order(1)]),
                log.statistics,
                lambda: slow.subscription.request(1),
                reader.history,
            )
            slow.subscription.cancel()
            reader.close()
            log.close()
            gc.collect()
            with ChangeLog.open(path, read_only=True) as mine:
                assert mine.history(limit=1, reverse=True).changes
            return asked

        with threads(write, write, look):
            for _ in range(scaled(12)):
                assert in_child(run) == {(str(path), os.getpid())}
        wait_until(lambda: reader.head == log.head)
        reader.close()
    assert verify(path).verdict is Verdict.SOUND


def test_a_pool_of_children_gets_the_error_whole(path):
    """F143: ``multiprocessing`` with ``fork``; the error travels back to the parent as it was raised."""
    global inherited_log
    with ChangeLog.open(path, **STILL) as inherited_log, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer interpreters warn of threads
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for _ in range(5):
                with pytest.raises(LogForked, match="read_only=True") as caught:
                    pool.apply(_commit)
                assert (caught.value.path, caught.value.pid) == (path, os.getpid())
                fill(inherited_log, 1)
        assert inherited_log.head == Position(6)


inherited_log: ChangeLog


def _commit():
    inherited_log.commit([order("child")])


def test_a_log_without_descriptors_is_refused_as_well():
    """F143: on a file system that is none of the system's."""
    system, place = SimulatedFileSystem(), Path("/simulated/log")
    with ChangeLog.open(place, filesystem=system, options=LogOptions(fill_step=0)) as log:
        fill(log, 1)
        assert in_child(lambda: refused(lambda: log.commit([order(1)]))) == {(str(place), os.getpid())}
        fill(log, 1)
        assert log.head == Position(3)


SCRIPT = """
import gc, os, sys
import flow
from publishers import ChangeLog, ChangeStore, upsert
from penstock_cdc.errors import LogForked
log = ChangeLog.open(sys.argv[1] + "/log")
follower = ChangeLog.open(sys.argv[1] + "/log", read_only=True)
store = ChangeStore.open(sys.argv[1] + "/store")
store.create("orders").commit([upsert("order", "1", {})])
items = flow.iter_blocking(follower.changes())
subscription = flow.subscribe(follower.changes(), print)
with log, follower, store, items, log.transaction() as transaction:
    transaction.upsert("order", "1", {})
    if os.fork() == 0:
        try:
            sys.exit(transaction.__exit__(None, None, None))
        except LogForked:
            subscription.cancel()
            del log, follower, store, items, subscription, transaction
            gc.collect()
            sys.exit(7)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
    subscription.cancel()
print(transaction.commit.version)
"""


def test_a_child_that_unwinds_and_ends_by_itself_prints_nothing(tmp_path):
    """F143: ``with`` blocks, garbage collection and the end of the interpreter; the parent does its own afterwards."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert verify(tmp_path / "log").verdict is Verdict.SOUND
