"""What tests of programs are given: changes as a list, without sleeping."""

import asyncio

import pytest

import flow
from flow import operators as op
from penstock_cdc.errors import InvalidOption, LogClosed
from publishers import Position, upsert
from publishers.testing import TooFew, collect, collect_async
from tests.publishers.support import opened, wait_until

WAYS = pytest.mark.parametrize(
    "wait", [collect, lambda *some: asyncio.run(collect_async(*some))], ids=["thread", "coroutine"]
)


def keys(changes):
    return [change.key for change in changes]


def both(feed, n, timeout=60.0):
    """What the two ways collect, which must be the same."""
    taken = collect(feed, n, timeout)
    assert taken == asyncio.run(collect_async(feed, n, timeout))
    return taken


def test_as_many_as_were_asked_for_come_in_order_and_the_subscription_ends():
    with opened() as log:
        log.commit([upsert("order", str(n), {}) for n in range(100)])
        assert keys(both(log.changes(since="earliest"), 41)) == [None, *map(str, range(40))]
        wait_until(lambda: log.statistics().subscription_count == 0)


def test_what_is_committed_while_it_waits_comes():
    with opened() as log:

        async def acted():
            waiting = asyncio.ensure_future(collect_async(log.changes(since=Position(1)), 2))
            await log.commit_async([upsert("order", "42", {})])
            return await waiting

        assert keys(asyncio.run(acted())) == [None, "42"]


def test_a_publisher_that_completes_before_gives_what_it_had():
    assert both(flow.from_iterable([1, 2]), 3) == [1, 2]


@WAYS
def test_too_few_are_an_assertion_that_tells_what_came_and_what_is_right(wait):
    feed = flow.pipe(flow.from_iterable(["a", "b"]), op.concat(flow.never()))
    with pytest.raises(TooFew, match=r"^2 of 3 came within 0\.1 s: \['a', 'b'\]; .* since=$") as caught:
        wait(feed, 3, 0.1)
    assert (caught.value.came, caught.value.expected) == (["a", "b"], 3)


@WAYS
def test_the_subscription_ends_also_when_the_time_is_over(wait):
    with opened() as log:
        with pytest.raises(TooFew):
            wait(log.changes(), 1, 0.01)
        wait_until(lambda: log.statistics().subscription_count == 0)


@WAYS
def test_the_error_of_a_publisher_is_raised(wait):
    with opened() as log:
        feed = log.changes(since="earliest")
    with pytest.raises(LogClosed):
        wait(feed, 1)
    with pytest.raises(TimeoutError, match="of its own"):
        wait(flow.error(TimeoutError("of its own")), 1)


@WAYS
@pytest.mark.parametrize(("n", "timeout"), [(0, 1), (True, 1), (1.0, 1), (1, 0), (1, True), (1, "1")])
def test_bounds_are_told(wait, n, timeout):
    with pytest.raises(InvalidOption):
        wait(flow.from_iterable([1]), n, timeout)
