"""Writers of a broadcast: what waits, gives up, stalls and goes on."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow.broadcast import Broadcast, BroadcastClosed, OfferResult
from tests.flow.broadcast.test_broadcast import ALL, Hands, listen, offer
from tests.flow.probes import wait_until


def test_submit_tells_how_many_wait_for_the_slowest():
    broadcast = Broadcast(4)
    listen(broadcast, ALL)
    assert broadcast.submit(0) == 0
    listen(broadcast)
    assert [broadcast.submit(item) for item in (1, 2)] == [1, 2]


def test_submit_gives_up_in_time_and_the_element_is_not_taken():
    broadcast = Broadcast(1)
    listener = listen(broadcast)
    broadcast.submit(0)
    with pytest.raises(TimeoutError):
        broadcast.submit(1, timeout=0.001)
    listener.request(ALL)
    assert listener.items == [0]


@pytest.mark.parametrize("leave", ["request", "cancel"])
def test_a_waiting_submit_goes_on_when_there_is_room(leave):
    broadcast = Broadcast(1)
    listener = listen(broadcast)
    broadcast.submit(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broadcast.submit, 1, 30)
        wait_until(lambda: broadcast._room._waiters)
        if leave == "request":
            listener.request(1)
        else:
            listener.cancel()
        assert waiting.result(60) == (1 if leave == "request" else 0)


def test_the_end_reaches_a_writer_that_waits():
    broadcast = Broadcast(1)
    listen(broadcast)
    broadcast.submit(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broadcast.submit, 1)
        wait_until(lambda: broadcast._room._waiters)
        broadcast.close()
        with pytest.raises(BroadcastClosed):
            waiting.result(60)


async def test_asubmit_suspends_until_there_is_room():
    broadcast = Broadcast(1)
    listener = listen(broadcast)
    assert await broadcast.asubmit(0) == 1
    waiting = asyncio.create_task(broadcast.asubmit(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    await asyncio.to_thread(listener.request, 1)
    assert await asyncio.wait_for(waiting, 60) == 1
    listener.request(1)
    assert listener.items == [0, 1]
    with pytest.raises(TypeError):
        await broadcast.asubmit(None)


async def test_a_cancelled_asubmit_took_nothing():
    broadcast = Broadcast(1)
    listener = listen(broadcast)
    await broadcast.asubmit(0)
    waiting = asyncio.create_task(broadcast.asubmit(1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    listener.request(ALL)
    assert listener.items == [0]
    assert not broadcast._suspended


def test_who_gates_for_too_long_is_overtaken():
    clock = Hands()
    broadcast = Broadcast(2, stall_timeout=5, clock=clock)
    stalled, healthy = listen(broadcast), listen(broadcast, ALL)
    assert offer(broadcast, range(3)) == [OfferResult.OK, OfferResult.OK, OfferResult.FULL]
    clock.time = 4.9
    assert broadcast.offer(2) is OfferResult.FULL
    clock.time = 5
    assert broadcast.offer(2) is OfferResult.OK
    assert isinstance(stalled.error, flow.Lagged)
    assert healthy.items == [0, 1, 2]
    assert broadcast.statistics().stalled == 1


def test_who_goes_forward_has_not_stalled():
    clock = Hands()
    broadcast = Broadcast(1, stall_timeout=5, clock=clock)
    listener = listen(broadcast)
    offer(broadcast, range(2))
    clock.time = 4
    listener.request(1)
    assert broadcast.offer(1) is OfferResult.OK
    clock.time = 6
    assert broadcast.offer(2) is OfferResult.FULL
    assert listener.error is None
    clock.time = 8
    [numbers] = broadcast.statistics().subscribers
    assert numbers.blocked_seconds == 6


def test_a_waiting_submit_ends_a_stall():
    broadcast = Broadcast(1, stall_timeout=0.01)
    listener = listen(broadcast)
    broadcast.submit(0)
    assert broadcast.submit(1) == 0
    assert isinstance(listener.error, flow.Lagged)


async def test_a_suspended_asubmit_ends_a_stall():
    broadcast = Broadcast(1, stall_timeout=0.01)
    listener = listen(broadcast)
    await broadcast.asubmit(0)
    assert await asyncio.wait_for(broadcast.asubmit(1), 60) == 0
    assert isinstance(listener.error, flow.Lagged)
