"""How many functions of Python a commit, a delivery and a read enter: what they cost, free of the machine's moods."""

import sys
import threading

import pytest

import flow
from publishers import Criterion, upsert
from publishers.blocks.block import Block
from publishers.views.view import View
from tests.harness.failing import failing
from tests.harness.inside import service_of
from tests.publishers.support import CountedLock, ManualExecutor, SteppedLoop, opened

MARGIN = 1.1


class Subscriber:
    def on_subscribe(self, subscription):
        subscription.request(1000)

    def on_next(self, change): ...
    def on_error(self, error): ...
    def on_complete(self): ...


class Batches(Subscriber):
    def on_subscribe(self, subscription):
        subscription.request(flow.UNBOUNDED)

    def __init__(self):
        self.taken = 0
        self.done = threading.Event()

    def on_next_batch(self, changes):
        self.taken += len(changes)

    def on_complete(self):
        self.done.set()


def calls_of(work):
    """Calls of functions that are written in Python, those of the standard library included."""
    entered = []

    def note(frame, event, _argument):
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return entered[1:]  # without that of ``work``


@pytest.mark.parametrize(("subscribers", "most"), [(0, 35), (1, 78)])
def test_a_durable_commit_of_one_change_enters_few_functions(subscribers, most):
    """Nobody subscribes, or one subscriber INLINE."""
    rows = [upsert("order", "1", b'{"n":1}')]
    with opened(sync="always") as log:
        for _ in range(subscribers):
            log.changes().subscribe(Subscriber(), executor=flow.INLINE)
        for _ in range(3):
            log.commit(rows)
        entered = calls_of(lambda: log.commit(rows))
    assert len(entered) <= MARGIN * most, "\n".join(entered)


def test_a_commit_of_ten_changes_enters_no_more_functions_than_one_of_a_single_change():
    rows = [upsert("order", str(number), b'{"n":1}') for number in range(10)]
    with opened(sync="always") as log:
        log.commit(rows)
        log.commit(rows[:1])
        assert len(calls_of(lambda: log.commit(rows))) <= len(calls_of(lambda: log.commit(rows[:1]))) + 1


@pytest.mark.parametrize(("make", "most"), [(lambda: flow.INLINE, 2), (SteppedLoop, 3), (ManualExecutor, 3)])
def test_a_chunk_takes_few_locks_of_its_ring(make, most):
    """Served directly: linked, and taken. On a loop or in a pool, its groups or its cursors are looked for as well."""
    with opened() as log:
        executor, reader = make(), Batches()
        log.changes().subscribe(reader, executor=executor)
        if executor is not flow.INLINE:
            executor.run_all()
        (shared,) = service_of(log).registry.publishers()
        for _ in range(2):
            lock = shared.ring.lock = CountedLock(shared.ring.lock)
            log.commit([upsert("order", "1", {})])
            if executor is not flow.INLINE:
                executor.run_all()
            assert lock.taken <= most
            shared.ring.lock = lock.lock
        assert reader.taken == 4


def test_a_subscriber_that_takes_batches_has_no_change_made_that_it_does_not_look_at(monkeypatch):

    failing(monkeypatch, Block, "changes", AssertionError("a change was made"))
    with opened() as log:
        for number in range(3):
            log.commit([upsert("order", str(number), {})])
        backlog, live = Batches(), Batches()
        log.changes(since="earliest", until=3).subscribe(backlog, executor=flow.INLINE)
        assert backlog.done.wait(60)
        log.changes(until=4).subscribe(live, executor=flow.INLINE)
        log.commit([upsert("order", "1", {})])
        assert live.done.wait(60)
    assert (backlog.taken, live.taken) == (6, 2)


class Counted(Batches):
    """The same, change by change."""

    on_next_batch = None

    def on_next(self, change):
        self.taken += 1


@pytest.mark.parametrize(("kind", "most"), [(Batches, 25), (Counted, 46)])
def test_a_frame_of_the_backlog_enters_few_functions(kind, most):
    """F30: ten changes, as part of a batch, or as ten objects with ten `on_next`."""
    frames = 200
    entered = []

    def note(frame, event, _argument):
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    reader = kind()
    with opened(replay_bytes=1) as log:
        for number in range(frames):
            log.commit([upsert("order", str(n), b'{"n":1}') for n in range(10 * number, 10 * number + 10)])
        threading.setprofile(note)  # the thread that reads begins now
        try:
            wish = Criterion(entity_types=["order"])
            log.changes(wish, since="earliest", until=frames).subscribe(reader, executor=flow.INLINE)
            assert reader.done.wait(60)
        finally:
            threading.setprofile(None)
    assert reader.taken >= 10 * frames
    assert len(entered) <= MARGIN * most * frames, len(entered) / frames


def test_a_subscribe_and_a_request_enter_few_functions():
    first, second = Requesting(), Requesting()
    with opened() as log:
        log.changes().subscribe(first, executor=flow.INLINE)
        entered = calls_of(lambda: log.changes().subscribe(second, executor=flow.INLINE))
        assert len(entered) <= MARGIN * 100, "\n".join(entered)
        entered = calls_of(lambda: first.subscription.request(1000))
        assert len(entered) <= MARGIN * 20, "\n".join(entered)
        log.commit([upsert("order", "1", b'{"n":1}')])
        entered = calls_of(lambda: second.subscription.request(1000))
        assert len(entered) <= MARGIN * 48, "\n".join(entered)


class Requesting(Subscriber):
    def on_subscribe(self, subscription):
        self.subscription = subscription


class Asking(Batches):
    on_next_batch = None

    def on_subscribe(self, subscription):
        self.subscription = subscription
        subscription.request(1)

    def on_next(self, _change):
        self.taken += 1
        self.subscription.request(1)


def test_a_change_of_the_backlog_that_is_asked_for_inside_on_next_enters_few_functions():
    """From one change of a frame to the next, without a turn of the drain and without a look at the frame."""
    frames = 100
    entered = []

    def note(frame, event, _argument):
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    reader = Asking()
    with opened() as log:
        for _ in range(frames):
            log.commit([upsert("order", str(n), b'{"n":1}') for n in range(10)])
        threading.setprofile(note)  # the threads that read and deliver begin now
        try:
            log.changes(since="earliest", until=frames).subscribe(reader, executor=flow.INLINE)
            assert reader.done.wait(60)
        finally:
            threading.setprofile(None)
    assert reader.taken == 11 * frames
    assert len(entered) <= MARGIN * 20 * reader.taken


def test_the_changes_of_a_frame_are_made_without_a_call_for_each_of_them():
    entered, view = [], View()
    assert hash(view)  # it is remembered
    with opened() as log:
        for size in (20, 200):
            rows = [upsert("order", str(n), b'{"n":1}') for n in range(size)]
            log.commit(rows)
            frames = service_of(log).frames
            block, _ = frames.read(frames.locate(log.visible, 0))
            entered.append(calls_of(lambda block=block: block.changes(block.indices, view)))
    assert len(entered[0]) == len(entered[1]) <= MARGIN * 17, "\n".join(entered[0])


def test_groups_without_consumers_cost_a_commit_nothing():
    """F75."""
    rows = [upsert("order", "1", b'{"n":1}')]
    with opened(sync="always") as log:
        for _ in range(3):
            log.commit(rows)
        before = calls_of(lambda: log.commit(rows))
        for number in range(10):
            log.groups.create(f"g{number}")
        with log.groups.join("g0", "idle"):
            log.commit(rows)
            assert calls_of(lambda: log.commit(rows)) == before


@pytest.mark.parametrize(("ordering", "most"), [("key", 32), ("none", 30)])
def test_a_change_that_a_group_gives_and_that_is_acknowledged_enters_few_functions(ordering, most):
    """F75, F76: read and acknowledged by 1,000."""
    count = 1_000
    with opened(sync="os") as log:
        log.commit([upsert("order", str(number), b'{"n":1}') for number in range(count)])
        bounds = {"max_ack_pending": count, "max_consumer_pending": count, "max_bytes": 2**30}
        group = log.groups.create("g", since="earliest", ordering=ordering, **bounds)
        with group.join("one") as worker:

            def work():
                assert worker.ack(*worker.read(count, wait=0)) == count

            entered = calls_of(work)
    assert len(entered) <= MARGIN * most * count, len(entered) / count
