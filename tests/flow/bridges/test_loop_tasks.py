"""What is noted for the end of a loop happens there, once, and nothing of it is left when it was not needed."""

import asyncio
import contextvars
import gc
import threading
import weakref

import pytest

from flow.bridges import loop_tasks
from flow.bridges.loop_tasks import begin, begin_on, when_closed
from tests.harness.constants import set_constant

pytestmark = pytest.mark.usefixtures("silence")


def on(loop, call):
    """What a call on the loop returned."""

    async def main():
        return call()

    return loop.run_until_complete(main())


def test_the_last_noted_is_called_first_on_the_thread_that_closes_the_loop(abandoned):
    loop, seen = abandoned.new(), []
    for number in range(3):
        on(loop, lambda number=number: when_closed(lambda: seen.append((number, threading.get_ident()))))
    del loop
    assert seen == []
    closing = threading.Thread(target=abandoned.close)
    closing.start()
    identity = closing.ident
    closing.join()
    assert seen == [(2, identity), (1, identity), (0, identity)]


def test_what_was_forgotten_is_not_called_and_may_be_forgotten_again(abandoned):
    loop, seen = abandoned.new(), []
    first = on(loop, lambda: when_closed(lambda: seen.append(1)))
    second = on(loop, lambda: when_closed(lambda: seen.append(2)))
    first()
    first()
    del loop
    abandoned.close()
    assert seen == [2]
    second()


@pytest.mark.parametrize("failure", [OSError("no"), KeyboardInterrupt()])
def test_one_that_fails_strands_no_other(abandoned, dropped, caplog, failure):
    loop, seen = abandoned.new(), []

    def fail():
        raise failure

    for call in (lambda: seen.append(1), fail, lambda: seen.append(2)):
        on(loop, lambda call=call: when_closed(call))
    del loop
    abandoned.close()
    assert seen == [2, 1]
    if isinstance(failure, OSError):
        assert dropped.errors == [failure]
    else:
        assert caplog.messages == ["dropped at the end of an event loop"]
        caplog.clear()


def test_a_loop_that_runs_for_days_still_calls(abandoned, monkeypatch):
    set_constant(monkeypatch, loop_tasks, "_DAY", 0.0)
    loop, seen, days = abandoned.new(), [], 0
    waited = loop_tasks._LoopEnd.wait

    def wait(self, loop):
        nonlocal days
        days += 1
        waited(self, loop)

    monkeypatch.setattr(loop_tasks._LoopEnd, "wait", wait)
    on(loop, lambda: when_closed(lambda: seen.append(1)))
    while days < 5:
        abandoned.run(10)
    assert seen == []
    del loop
    abandoned.close()
    assert seen == [1]


def test_the_loop_does_not_keep_the_context_of_the_first_caller(abandoned):
    class Large:
        pass

    variable = contextvars.ContextVar("variable")

    def note():
        large = Large()
        variable.set(large)
        when_closed(lambda: None)
        return weakref.ref(large)

    loop = abandoned.new()
    reference = contextvars.Context().run(on, loop, note)
    gc.collect()
    assert reference() is None
    del loop
    abandoned.close()


def test_nothing_keeps_a_loop_that_was_closed(abandoned):
    loop = abandoned.new()
    on(loop, lambda: when_closed(lambda: None))
    on(loop, lambda: begin(asyncio.Event().wait()))
    reference = weakref.ref(loop)
    del loop
    abandoned.close()
    gc.collect()
    assert reference() is None


def test_a_task_that_nobody_holds_is_held_until_its_loop_closes(abandoned):
    """Asyncio refers to a task weakly, and what it waits for here is its own."""
    story = []

    async def wait():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            story.append("ended")

    loop = abandoned.new()
    on(loop, lambda: begin(wait(), lambda task: story.append(task.cancelled())) and None)
    abandoned.run(5)
    gc.collect()
    assert story == []
    del loop
    abandoned.close()
    assert story == ["ended", True]


async def test_done_is_called_once_with_a_task_that_ended_by_itself():
    async def work():
        return "result"

    done = []
    task = begin(work(), done.append)
    assert await task == "result"
    assert done == [task]


async def test_a_task_on_another_loop_sees_the_context_of_its_caller():
    variable = contextvars.ContextVar("variable", default="nothing")
    seen = []

    async def work():
        seen.append(variable.get())

    def elsewhere(loop):
        variable.set("mine")
        begin_on(loop, work).result(60)

    await asyncio.to_thread(elsewhere, asyncio.get_running_loop())
    assert seen == ["mine"]


async def test_what_a_task_on_another_loop_raises_is_that_of_its_future():
    async def work():
        raise LookupError("mine")

    future = await asyncio.to_thread(begin_on, asyncio.get_running_loop(), work)
    with pytest.raises(LookupError, match="mine"):
        await asyncio.wrap_future(future)
