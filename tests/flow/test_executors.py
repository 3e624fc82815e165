import asyncio
import contextvars
import gc
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow.executors import INLINE, Executor, LoopExecutor, Resubmitter, executor_of, loop_executor
from tests.flow.probes import ManualExecutor, Probe, QueueFeed, wait_until


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts how often it is woken."""

    woken = 0

    def call_soon_threadsafe(self, *args, **options):
        self.woken += 1
        return super().call_soon_threadsafe(*args, **options)


@pytest.fixture
def loop():
    loop = CountingLoop()
    yield loop
    loop.close()


def turn(loop, times=1):
    for _ in range(times):
        loop.run_until_complete(asyncio.sleep(0))


def test_inline_runs_on_the_caller():
    seen = []
    INLINE.submit(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
    assert repr(INLINE) == "flow.INLINE"


def test_what_a_caller_may_name_as_executor(loop):
    manual = ManualExecutor()
    assert executor_of(None) is INLINE
    assert executor_of(manual) is manual
    assert executor_of(loop) is loop_executor(loop)
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool, Executor)
        assert executor_of(pool) is pool
    with pytest.raises(TypeError, match="executor: 3"):
        executor_of(3)  # type: ignore[arg-type]


def test_a_burst_wakes_the_loop_once(loop):
    executor = loop_executor(loop)
    seen = []
    for number in range(50):
        executor.submit(lambda number=number: seen.append(number))
    assert loop.woken == 1
    turn(loop)
    assert seen == list(range(50))
    executor.submit(lambda: seen.append(50))
    assert loop.woken == 2


def test_a_burst_over_many_drains_wakes_the_loop_once(loop):
    """F69."""
    feeds = [QueueFeed() for _ in range(200)]
    probes = [Probe(first=9) for _ in feeds]
    drains = [flow.Drain(probe, feed, executor=loop) for probe, feed in zip(probes, feeds, strict=True)]
    for drain in drains:
        drain.start()
    assert loop.woken == 1
    turn(loop, 10)
    loop.woken = 0
    for feed, drain in zip(feeds, drains, strict=True):
        feed.push(1)
        drain.signal()
    assert loop.woken == 1
    turn(loop, 10)
    assert all(probe.items == [1] for probe in probes)
    assert loop.woken == 1


def test_the_loop_gets_its_turn_between_many_tasks(loop):
    executor = LoopExecutor(loop, turn=10)
    seen = []
    executor.submit(lambda: loop.call_soon(seen.append, "other"))
    for number in range(24):
        executor.submit(lambda number=number: seen.append(number))
    turn(loop, 2)
    assert seen == [*range(9), "other", *range(9, 24)]
    assert loop.woken == 1


def test_what_is_submitted_from_inside_a_task_runs_in_the_same_order(loop):
    executor = loop_executor(loop)
    seen = []
    executor.submit(lambda: (seen.append(1), executor.submit(lambda: seen.append(3))))
    executor.submit(lambda: seen.append(2))
    turn(loop, 2)
    assert seen == [1, 2, 3]


def test_a_task_that_raises_strands_no_other(loop):
    executor = loop_executor(loop)
    seen = []
    errors = []
    loop.set_exception_handler(lambda loop, context: errors.append(context["exception"]))
    executor.submit(lambda: 1 / 0)
    executor.submit(lambda: seen.append(1))
    turn(loop, 2)
    executor.submit(lambda: seen.append(2))
    turn(loop, 2)
    assert seen == [1, 2]
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_tasks_do_not_see_the_context_of_who_happened_to_submit(loop):
    variable = contextvars.ContextVar("variable", default="nothing")
    variable.set("submitter")
    seen = []
    loop_executor(loop).submit(lambda: seen.append(variable.get()))
    turn(loop)
    assert seen == ["nothing"]


def test_there_is_one_executor_a_loop_and_it_does_not_keep_the_loop():
    loop = asyncio.new_event_loop()
    executor = loop_executor(loop)
    assert loop_executor(loop) is executor
    other = asyncio.new_event_loop()
    assert loop_executor(other) is not executor
    other.close()
    executor.submit(lambda: None)
    loop.run_until_complete(asyncio.sleep(0))
    assert not executor.closed
    loop.close()
    assert executor.closed
    reference = weakref.ref(loop)
    del loop
    gc.collect()
    assert reference() is None
    assert executor.closed
    with pytest.raises(RuntimeError):
        executor.submit(lambda: None)


def test_a_closed_loop_raises_even_if_it_closed_over_a_pending_wake_up():
    loop = asyncio.new_event_loop()
    executor = loop_executor(loop)
    executor.submit(lambda: None)
    loop.close()
    with pytest.raises(RuntimeError):
        executor.submit(lambda: None)


def test_a_loop_that_closes_during_the_submit_raises_and_can_be_asked_again():
    class Closing(CountingLoop):
        def call_soon_threadsafe(self, *args, **options):
            self.close()
            return super().call_soon_threadsafe(*args, **options)

    loop = Closing()
    executor = loop_executor(loop)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            executor.submit(lambda: None)


def test_what_is_handed_over_runs_on_the_loop_or_is_said_to_be_lost():
    for runs in (True, False):
        loop, seen = asyncio.new_event_loop(), []
        loop_executor(loop).hand_over(
            lambda seen=seen: seen.append("run"), lambda seen=seen: seen.append("lost")
        )
        if runs:
            turn(loop)
        assert seen == (["run"] if runs else [])
        loop.close()
        assert seen == (["run"] if runs else ["lost"])
        with pytest.raises(RuntimeError):
            loop_executor(loop).hand_over(
                lambda seen=seen: seen.append("run"), lambda seen=seen: seen.append("lost")
            )
        assert len(seen) == 1


def test_what_is_handed_over_to_a_loop_that_has_gone_is_refused():
    loop = asyncio.new_event_loop()
    executor = loop_executor(loop)
    loop.close()
    del loop
    gc.collect()
    with pytest.raises(RuntimeError, match="closed"):
        executor.hand_over(lambda: None, lambda: None)


async def test_threads_submit_while_the_loop_runs():
    executor = loop_executor(asyncio.get_running_loop())
    seen = []
    done = asyncio.Event()

    def one():
        seen.append(1)
        if len(seen) == 4000:
            done.set()

    def work():
        for _ in range(1000):
            executor.submit(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(done.wait(), 60)
    for thread in threads:
        thread.join()
    assert len(seen) == 4000


def test_the_resubmitter_tries_until_the_executor_accepts_and_its_thread_ends_then():
    where = ManualExecutor()
    where.refusal = queue.Full
    rescue = Resubmitter(interval=0.0005)
    seen = []
    for number in range(5):
        rescue.resubmit(lambda number=number: seen.append(number), where)
    wait_until(lambda: where.refused > 20)
    assert seen == []
    where.refusal = None
    wait_until(lambda: len(where.tasks) == 5)
    where.run_all()
    assert seen == [0, 1, 2, 3, 4]
    wait_until(lambda: not rescue._serving)
    rescue.resubmit(lambda: seen.append(5), where)
    wait_until(lambda: where.run_all() == 1)
    assert seen[-1] == 5


def test_the_resubmitter_survives_a_task_that_raises(caplog):
    def explode():
        raise SystemExit(3)

    rescue = Resubmitter(interval=0.0005)
    seen = []
    rescue.resubmit(explode, INLINE)
    rescue.resubmit(lambda: seen.append(1), INLINE)
    wait_until(lambda: seen == [1])
    wait_until(lambda: not rescue._serving)
    assert "resubmits" in caplog.text
