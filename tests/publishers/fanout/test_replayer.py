"""What serves those who read from the WAL: shared frames, and turns."""

import threading
from unittest import mock

import pytest

import flow
import publishers.fanout.replayer as replayer_module
from penstock_cdc.errors import HistoryPruned, WalCorrupted
from publishers import Position
from publishers.background import BackgroundThread
from publishers.blocks.block import Block
from publishers.errors import LogExhausted
from publishers.fanout.replayer import FrameCache, Replayer
from publishers.views.view import View
from tests.harness.inside import lock_of
from tests.publishers.support import CountedLock, Probe, fill, in_threads, wait_until
from tests.publishers.wal.logs import commit, opened, options
from tests.simulation.filesystem import SimulatedFileSystem


@pytest.fixture
def wal():
    log = opened(SimulatedFileSystem(), options(segment_bytes=1 << 20))
    for number in range(20):
        commit(log, b"%02d" % number * 1000)
    yield log
    log.close()


def versions(run):
    return [block.version for block, _ in run]


def walked(cache, location):
    while (found := cache.read(location)) is not None:
        block, location = found
        yield block.version


def test_frames_that_several_read_are_read_once_and_the_least_recent_go_first(wal):
    """F30: the bound holds after each read, and one frame is always kept."""
    one = FrameCache(wal.reader, 1 << 20)
    start = one.locate(1, 0)
    assert list(walked(one, start)) == list(walked(one, start)) == list(range(1, 21))
    assert one.reads == 20, "the second time from memory"
    weight = one.nbytes // 20
    small = FrameCache(wal.reader, 4 * weight)
    for _ in walked(small, start):
        assert small.nbytes <= 4 * weight
    assert small.peek(start) is None
    newest = wal.reader.locate(20)
    assert small.peek(newest)[0].version == 20
    none = FrameCache(wal.reader, 0)
    assert list(walked(none, start)) == list(range(1, 21))
    assert none.peek(newest)[0].version == 20
    assert 0 < none.nbytes < 2 * weight
    small.clear()
    assert (small.nbytes, small.peek(newest)) == (0, None)


def test_what_is_made_from_frames_that_nobody_asks_for_again_counts(wal):
    """F68: a tailer reads each frame once, and makes changes of it."""
    for number in range(300):
        commit(wal, *[b"%d" % number] * 50)
    bound = 1 << 20
    cache = FrameCache(wal.reader, bound)
    location = cache.locate(1, 0)
    blocks = []
    while (found := cache.read(location)) is not None:
        block, location = found
        block.changes(block.indices, View())
        blocks.append(block)
        kept = sum(block.nbytes for block, *_ in cache._kept.values())
        assert kept <= bound + 64 * block.nbytes
    assert len(blocks) == 320
    assert all(block.nbytes > 5 * block.weight for block in blocks[-100:])


def test_damage_that_a_read_meets_is_told_and_raised_each_time(wal, monkeypatch):
    told = []
    cache = FrameCache(wal.reader, 1 << 20, told.append)
    start = cache.locate(1, 0)
    damage = WalCorrupted(*start, "the crc of the frame is wrong")
    monkeypatch.setattr(wal.reader, "_frame", mock.Mock(side_effect=damage))
    for _ in range(2):
        with pytest.raises(WalCorrupted):
            cache.read(start)
    with pytest.raises(WalCorrupted):
        cache.locate(2, 0)
    assert told == [damage] * 3


def test_a_frame_that_grows_while_it_is_weighed_is_counted_with_one_weight(wal, monkeypatch):
    """F68: what others make from it meanwhile is found the next time."""
    cache = FrameCache(wal.reader, 1 << 20)
    start = cache.locate(1, 0)
    cache.read(start)
    growing = iter(range(10_000, 20_000))
    monkeypatch.setattr(Block, "nbytes", property(lambda block: next(growing)))
    for _ in range(3):
        assert cache.peek(start) is not None
        assert cache.nbytes == cache._kept[start][2]


class PollQuery:
    """A reader that counts, and waits where the test says so."""

    def __init__(self, reader):
        self.reader = reader
        self.located = []
        self.inside, self.go = threading.Event(), threading.Event()

    def locate(self, version, index):
        self.located.append((version, index))
        return self.reader.locate(version, index)

    def read(self, location):
        self.inside.set()
        assert self.go.wait(60)
        return self.reader.read(location)


def test_who_asks_for_a_frame_that_is_being_read_waits_for_it(wal):
    """F30: so that those whom one eviction overtakes cost one read."""
    reader = PollQuery(wal.reader)
    cache = FrameCache(reader, 1 << 20)
    place = wal.reader.locate(7)
    found = []

    def second():
        assert reader.inside.wait(60)
        asked = threading.Event()
        condition = cache._read
        wait = condition.wait

        def waiting(timeout=None):
            asked.set()
            return wait(timeout)

        condition.wait = waiting
        thread = threading.Thread(target=lambda: found.append(cache.read(place)), daemon=True)
        thread.start()
        assert asked.wait(60)
        reader.go.set()
        thread.join(60)

    in_threads(lambda: found.append(cache.read(place)), second)
    assert [block.version for block, _ in found] == [7, 7]
    assert cache.reads == 1


def test_a_frame_that_cannot_be_read_keeps_nobody_waiting(wal):
    """F37: the next one who asks tries again."""
    reader = PollQuery(wal.reader)
    reader.go.set()
    cache = FrameCache(reader, 1 << 20)
    place = wal.reader.locate(7)
    reader.read = lambda location: 1 / 0
    with pytest.raises(ZeroDivisionError):
        cache.read(place)
    del reader.read
    assert cache.read(place)[0].version == 7
    assert cache.read(wal.reader.locate(21)) is None


def test_a_run_of_frames_is_read_and_found_again_as_far_as_is_asked_for(wal):
    """F30: each with one turn of the lock, but for the claim; it ends before what is in memory already."""
    cache = FrameCache(wal.reader, 1 << 20)
    weight = cache.read(wal.reader.locate(20))[0].weight
    lock = cache._lock = CountedLock(lock_of(cache))
    start = cache.locate(1, 0)
    lock.taken = 0
    assert versions(cache.run(start, 3 * weight, 100)) == [1, 2, 3]
    assert lock.taken == 2
    assert versions(cache.run(start, 1 << 20, 2)) == [1, 2]
    assert versions(cache.run(start, 1 << 20, 100)) == [1, 2, 3], "what is in memory"
    assert (lock.taken, cache.reads) == (4, 4)
    assert versions(cache.run(cache.read(wal.reader.locate(3))[1], 1 << 20, 100)) == list(range(4, 20))
    assert versions(cache.run(wal.reader.locate(20), 1 << 20, 100)) == [20]
    assert cache.run(wal.reader.locate(21), 1 << 20, 100) == []
    assert cache.reads == 20


def test_a_frame_that_two_runs_have_read_at_once_is_counted_once(wal):
    """F30: a run claims its first frame only."""
    reader = PollQuery(wal.reader)
    reader.go.set()
    cache = FrameCache(reader, 1 << 20)
    shared = wal.reader.locate(3)

    def read(location):
        if location == shared and shared not in cache._reading:
            assert cache.read(shared)[0].version == 3  # as another thread would
        return wal.reader.read(location)

    reader.read = read
    assert versions(cache.run(wal.reader.locate(1), 1 << 20, 4)) == [1, 2, 3, 4]
    assert cache.nbytes == sum(block.nbytes for block, *_ in cache._kept.values())
    assert len(cache._kept) == 4


@pytest.mark.parametrize("pruned", [False, True])
def test_what_cannot_be_read_ends_a_run_and_is_met_when_it_comes_first(wal, pruned):
    """F37, E37."""
    told = []
    reader = PollQuery(wal.reader)
    reader.go.set()
    cache = FrameCache(reader, 1 << 20, told.append)
    start, bad = wal.reader.locate(1), wal.reader.locate(3)
    damage = HistoryPruned(Position(9)) if pruned else WalCorrupted(*bad, "the crc of the frame is wrong")

    def read(location):
        if location == bad:
            raise damage
        return wal.reader.read(location)

    reader.read = read
    run = cache.run(start, 1 << 20, 100)
    assert versions(run) == [1, 2]
    assert told == ([] if pruned else [damage])
    with pytest.raises(type(damage)):
        cache.run(run[-1][1], 1 << 20, 100)
    assert not cache._reading


def test_places_of_positions_are_remembered_up_to_a_bound(wal):
    reader = PollQuery(wal.reader)
    cache = FrameCache(reader, 1 << 20)
    for index in range(300):
        assert cache.locate(3, index) == reader.reader.locate(3, index)
    assert len(reader.located) == 300
    cache.locate(3, 299)
    assert len(reader.located) == 300
    cache.locate(3, 0)
    assert len(reader.located) == 301
    assert len(cache._located) == 256


class Task:
    """Somebody in the line."""

    def __init__(self, *turns, detached=False, heavy=False):
        self.detached = detached
        self.heavy = heavy
        self.turns = list(turns)
        self.done = threading.Event()
        self.stopped = 0

    def replay(self):
        turn = self.turns.pop(0)
        if not self.turns:
            self.done.set()
        return turn() if callable(turn) else turn

    def replay_stopped(self):
        self.stopped += 1
        self.done.set()


def test_each_gets_a_slice_in_turn_until_there_is_nothing_left_to_do():
    order = []
    gate = threading.Event()
    replayer = Replayer(1, "turns", 0.1)

    def turn(name, more):
        return lambda: order.append(name) or more

    first = Task(lambda: gate.wait(60), turn("a", True), turn("a", False))
    second = Task(turn("b", True), turn("b", False))
    replayer.enlist(first)
    replayer.enlist(second)
    gate.set()
    assert first.done.wait(60)
    assert second.done.wait(60)
    wait_until(lambda: len(order) == 4)
    assert order in (["b", "a", "b", "a"], ["a", "b", "a", "b"])
    assert replayer.waiting == 0
    replayer.close()


def test_those_that_are_detached_have_one_turn_at_a_time_and_rest_for_their_share(monkeypatch):
    """F147: a tenth of one thread's time, whatever they cost; all others come in between."""
    now, worked = [100.0], [0.0]
    monkeypatch.setattr(replayer_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(replayer_module.time, "thread_time", lambda: worked[0])
    replayer, order = Replayer(2, "shared", 0.1), []

    def turn(name, seconds=0.0):
        def run():
            worked[0] += seconds
            order.append(name)
            return name == "dear" and order.count("dear") < 4

        return run

    dear = Task(*[turn("dear", 2.0)] * 4, detached=True)
    also = Task(turn("also"), detached=True)
    replayer.enlist(dear)
    wait_until(lambda: replayer.waiting == 1 and replayer._detached_from == 118.0)
    replayer.enlist(also)
    for _ in range(3):
        replayer.enlist(task := Task(turn("cheap")))
        assert task.done.wait(60)
    assert order == ["dear", "cheap", "cheap", "cheap"]
    for number in (2, 3, 4):
        now[0] = replayer._detached_from - 0.01
        replayer.enlist(task := Task(turn("cheap")))
        assert task.done.wait(60)
        assert order.count("dear") == number - 1
        now[0] = replayer._detached_from
        with lock_of(replayer):
            replayer._work.notify_all()
        wait_until(lambda number=number: order.count("dear") + order.count("also") >= number)
        now[0] += 20.0
        with lock_of(replayer):
            replayer._work.notify_all()
    assert also.done.wait(60)
    assert dear.done.wait(60)
    replayer.close()


def test_one_thread_at_a_time_reads_for_those_beyond_their_share_and_the_others_come_in_between():
    """F147: threads that read snapshots for whoever asks for most of them do not all compete with the event loop."""
    replayer, order, gate = Replayer(2, "heavy", 0.1), [], threading.Event()
    first = Task(lambda: order.append("first") or not gate.wait(60), heavy=True)
    replayer.enlist(first)
    wait_until(lambda: order == ["first"])
    heavy = [Task(lambda: order.append("heavy"), heavy=True) for _ in range(3)]
    for task in heavy:
        replayer.enlist(task)
    light = Task(lambda: order.append("light"))
    replayer.enlist(light)
    assert light.done.wait(60)  # on the other thread, which takes none of them
    assert replayer.waiting == 3
    blocked = threading.Event()
    other = Task(lambda: order.append("other") or not blocked.wait(60))
    replayer.enlist(other)
    wait_until(lambda: order[-1] == "other")
    for _ in range(3):
        replayer.enlist(Task(lambda: order.append("light")))
    gate.set()
    assert all(task.done.wait(60) for task in heavy)
    wait_until(lambda: not replayer.waiting and len(order) == 9)
    assert order[3:] == ["heavy", "light"] * 3
    blocked.set()
    replayer.close()


def test_one_whose_slice_fails_takes_the_thread_from_nobody(caplog):
    """F37: it is logged, because its subscriber was not told."""
    replayer = Replayer(1, "failing", 0.1)
    bad, good = Task(lambda: 1 / 0), Task(False)
    replayer.enlist(bad)
    replayer.enlist(good)
    assert good.done.wait(60)
    replayer.close()
    assert "a slice of replay failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert (bad.stopped, good.stopped) == (0, 0)


def test_who_waits_or_comes_when_it_is_closed_is_told():
    gate = threading.Event()
    inside = threading.Event()
    replayer = Replayer(1, "closing", 0.1)
    busy = Task(lambda: inside.set() or gate.wait(60))
    waiting, late = Task(True), Task(True)
    replayer.enlist(busy)
    assert inside.wait(60)
    replayer.enlist(waiting)
    closing = threading.Thread(target=replayer.close, daemon=True)
    closing.start()
    assert waiting.done.wait(60)
    gate.set()
    closing.join(60)
    assert not closing.is_alive()
    replayer.enlist(late)
    assert [busy.stopped, waiting.stopped, late.stopped] == [1, 1, 1]  # the first one had more to do


def test_who_lacks_something_rests_unless_the_replayer_is_closed_and_it_is_told_once(caplog):
    replayer = Replayer(1, "lacking", 0.1)
    with mock.patch.object(replayer._work, "wait") as wait:
        for _ in range(2):
            replayer.rest(LogExhausted("descriptors"))
        assert wait.call_count == 2
        replayer.close()
        replayer.rest(LogExhausted("descriptors"))
        assert wait.call_count == 2, "a closed one keeps nobody"
    assert caplog.text.count("lacking cannot be read until that passes") == 1


def test_a_slice_may_close_the_replayer_that_runs_it():
    """A subscriber closes its log in a signal."""
    replayer = Replayer(2, "inside", 0.1)
    task = Task(lambda: replayer.close() or False)
    replayer.enlist(task)
    assert task.done.wait(60)
    wait_until(lambda: not any(thread.is_alive() for thread in replayer._threads))
    assert task.stopped == 0


class Exhausted(BackgroundThread):
    """A thread that the machine has no room for."""

    def start(self):
        raise LogExhausted("threads")


def test_without_any_thread_who_comes_is_refused_and_the_next_one_tries_again(monkeypatch):
    """F37: one that never started counts for nothing, and closing does not wait for it."""
    replayer = Replayer(1, "exhausted", 0.1)
    refused, served = Task(False), Task(False)
    with monkeypatch.context() as patched:
        patched.setattr(replayer_module, "BackgroundThread", Exhausted)
        for _ in range(2):
            with pytest.raises(LogExhausted, match="no more threads"):
                replayer.enlist(refused)
            assert replayer.waiting == 0
    replayer.enlist(served)
    assert served.done.wait(60)
    replayer.close()
    assert (refused.turns, refused.stopped, served.stopped) == ([False], 0, 0)


def test_if_no_further_thread_can_be_started_those_that_there_are_serve_who_comes(monkeypatch):
    """F37: nobody is refused for that."""
    replayer = Replayer(2, "few", 0.1)
    gate, inside = threading.Event(), threading.Event()
    replayer.enlist(Task(lambda: inside.set() or (gate.wait(60) and False)))
    assert inside.wait(60)
    second, third = Task(False), Task(False)
    with monkeypatch.context() as patched:
        patched.setattr(replayer_module, "BackgroundThread", Exhausted)
        replayer.enlist(second)
        assert replayer.waiting == 1
    replayer.enlist(third)  # now there is room, although the first one is still busy
    assert second.done.wait(60)
    assert third.done.wait(60)
    gate.set()
    replayer.close()
    assert (second.stopped, third.stopped) == (0, 0)


def test_a_reader_from_the_log_for_whom_there_is_no_thread_is_told_and_the_log_closes(monkeypatch, log):
    """F37: its subscriber hears of it, and nobody after it hangs."""
    fill(log, 3)
    with monkeypatch.context() as patched:
        patched.setattr(replayer_module, "BackgroundThread", Exhausted)
        refused = Probe(first=10)
        log.changes(since=Position(1)).subscribe(refused, executor=flow.INLINE)
        assert isinstance(refused.error, LogExhausted)
    later = Probe(first=10)
    log.changes(since=Position(1)).subscribe(later, executor=flow.INLINE)
    later.wait_for(6)
    log.close()
    assert later.clean
