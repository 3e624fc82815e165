"""Asynchronous iterables keep the rules, on loops of every kind, with signals there and elsewhere."""

import asyncio
import contextlib

import flow
from flow.tck import PublisherVerification
from tests.tck.places import SILENCE, On, closed, needs_uvloop, place, running_loop


async def numbers(n):
    for number in range(n):
        yield number


async def failing():
    raise RuntimeError("it fails")
    yield 1


class Iterating(PublisherVerification):
    """The iterator lives on a loop of a kind, in a thread of its own; signals run in a ``place``, by default there."""

    kind = "plain"
    place = "inline"
    lookahead = True
    timeout = SILENCE
    strict = True
    multicast = "cold"
    reports = True
    plenty = 3_000
    rounds = 30

    @classmethod
    def setup_class(cls):
        cls.stack = contextlib.ExitStack()
        cls.loop = cls.stack.enter_context(running_loop(cls.kind))
        cls.executor = cls.stack.enter_context(place(cls.place))

    @classmethod
    def teardown_class(cls):
        cls.stack.close()

    def make_publisher(self, n):
        made = flow.from_async_iterable(lambda: numbers(n), loop=self.loop, lookahead=self.lookahead)
        return On(made, self.executor)

    def make_failed_publisher(self):
        # It fails when it is begun, which a look-ahead does without any request.
        return On(flow.from_async_iterable(failing, loop=self.loop, lookahead=True), self.executor)

    def make_stranded_publisher(self):
        return On(flow.from_async_iterable(lambda: numbers(3), loop=closed("plain")), None)


class TestOnAPlainLoop(Iterating):
    pass


class TestOnALoopInDebugModeWithoutLookahead(Iterating):
    kind = "debug"
    lookahead = False
    completes_early = False


@needs_uvloop
class TestOnUvloop(Iterating):
    kind = "uvloop"


class TestSignallingOnAPool(Iterating):
    place = "pool"


class TestSignallingInline(Iterating):
    @classmethod
    def setup_class(cls):
        super().setup_class()
        cls.executor = flow.INLINE


def test_no_task_is_left_on_the_loop():
    with running_loop() as loop:
        suite = Iterating()
        suite.loop, suite.executor = loop, None
        suite.test_required_spec312_cancelMustMakeThePublisherToEventuallyStopSignaling()

        async def others():
            left = asyncio.all_tasks() - {asyncio.current_task()}
            return await asyncio.wait(left, timeout=60) if left else (left, left)

        _, pending = asyncio.run_coroutine_threadsafe(others(), loop).result(60)
        assert not pending
