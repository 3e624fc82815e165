import asyncio

import pytest

from tests.harness.constants import without_bounds
from transports.limits import Limits
from transports.server.outbound import Outbound
from transports.tcp.shares import SHARES
from transports.tcp.turns import turns_of


class FakeLink:
    """A socket whose buffer the test empties."""

    payer = "ann"

    def __init__(self):
        self.paused = False
        self.unsent = 0
        self.flushed = 0

    def flush(self):
        self.flushed += 1


class Stream:
    """Something that always has another frame, as a drain with demand."""

    def __init__(self, outbound, link, name, trace, size=10, frames=3, linger=0.0):
        self.lane = outbound.lane(size, linger)
        self.link, self.name, self.trace, self.left = link, name, trace, frames

    def wake(self):
        self.lane.submit(self.run)

    def run(self):
        self.trace.append(self.name)
        self.link.unsent += self.lane.batch_bytes
        self.left -= 1
        if self.left:
            self.lane.submit(self.run)


def make(link, **limits):
    return Outbound(asyncio.get_running_loop(), link, Limits(**without_bounds(limits)))


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_subscriptions_take_turns_one_frame_each():
    link, trace = FakeLink(), []
    outbound = make(link)
    for name in "abc":
        Stream(outbound, link, name, trace).wake()
    await turn()
    assert "".join(trace) == "abcabcabc"


async def test_nothing_runs_while_the_link_is_paused():
    link, trace = FakeLink(), []
    outbound = make(link)
    link.paused = True
    Stream(outbound, link, "a", trace).wake()
    await turn()
    assert trace == []
    link.paused = False
    outbound.run()
    await turn()
    assert trace == ["a", "a", "a"]


async def test_a_turn_adds_at_most_the_window():
    link, trace = FakeLink(), []
    outbound = make(link, high_water=100, window_bytes=1000)
    Stream(outbound, link, "a", trace, size=200, frames=50).wake()
    await turn()
    assert link.unsent == 1000
    link.unsent = 900
    await turn()
    assert link.unsent == 900
    link.unsent = 0
    await turn()
    assert link.unsent == 1000


async def test_a_paused_link_is_not_polled_by_the_loop():
    link, trace = FakeLink(), []
    outbound = make(link)
    link.paused = True
    Stream(outbound, link, "a", trace).wake()
    await turn()
    flushed = link.flushed
    for _ in range(50):
        await asyncio.sleep(0)
    assert link.flushed == flushed


async def test_the_loop_gets_its_turn_back_from_a_stream_that_never_ends():
    link, trace = FakeLink(), []
    outbound = make(link)

    class Endless(Stream):
        def run(self):
            self.trace.append(self.name)
            self.lane.submit(self.run)

    Endless(outbound, link, "a", trace).wake()
    await turn()
    assert 64 <= len(trace) <= 64 * 6


async def test_after_the_close_everything_runs_whatever_the_link_says():
    link, trace = FakeLink(), []
    outbound = make(link)
    link.paused = True
    stream = Stream(outbound, link, "a", trace, linger=5.0)
    stream.lane.eager = False
    stream.wake()
    outbound.close()
    await turn()
    assert trace == ["a", "a", "a"]


async def test_a_lane_that_lingers_waits_unless_it_is_eager(until):
    link, trace = FakeLink(), []
    outbound = make(link)
    eager = Stream(outbound, link, "e", trace, frames=1, linger=60.0)
    late = Stream(outbound, link, "l", trace, frames=1, linger=0.01)
    never = Stream(outbound, link, "n", trace, frames=1, linger=60.0)
    late.lane.eager = never.lane.eager = False
    for stream in (never, late, eager):
        stream.wake()
    await until(lambda: trace == ["e", "l"])


async def test_tasks_come_from_any_thread(until):
    link, trace = FakeLink(), []
    outbound = make(link)
    await asyncio.gather(
        *(asyncio.to_thread(Stream(outbound, link, name, trace).wake) for name in "abcdefgh")
    )
    await until(lambda: len(trace) == 24)
    assert sorted(trace) == sorted("abcdefgh" * 3)


def test_a_closed_loop_refuses():
    async def start():
        return make(FakeLink())

    outbound = asyncio.run(start())
    with pytest.raises(RuntimeError, match="closed"):
        outbound.lane(1, 0.0).submit(lambda: None)


async def test_a_lane_takes_a_batch_past_its_line_only_while_nothing_has_to_wait():
    link = FakeLink()
    blocked = []
    outbound = Outbound(asyncio.get_running_loop(), link, Limits(), lambda: bool(blocked))
    lane = outbound.lane(10, 0.0)
    assert not lane.busy()
    link.paused = True
    assert lane.busy()
    link.paused, link.unsent = False, Limits().window_bytes
    assert lane.busy()
    link.unsent = 0
    blocked.append(1)
    assert lane.busy()
    blocked.clear()
    seen = []
    lane.submit(lambda: seen.append(lane.busy()))
    assert lane.busy()
    await turn()
    assert (seen, lane.busy()) == ([True], False)
    outbound.close()
    assert lane.busy()


async def test_a_lane_that_lingers_takes_nothing_past_its_line_unless_it_is_eager():
    lane = make(FakeLink()).lane(10, 0.5)
    assert not lane.busy()
    lane.eager = False
    assert lane.busy()


async def test_what_is_written_past_the_lanes_in_a_turn_of_the_loop_is_sent_at_once():
    link = FakeLink()
    outbound = make(link)
    lanes = [outbound.lane(10, 0.0) for _ in range(3)]
    for lane in lanes:
        lane.settle()
    assert link.flushed == 0
    await turn()
    assert link.flushed == 1
    lanes[0].settle()
    await turn()
    assert link.flushed == 2


async def test_the_frames_of_one_beyond_its_share_come_when_it_has_its_turn(monkeypatch, until):
    """F147: rows of snapshots that one payer has asked for on many connections are not all written in one run of the loop."""
    heavy = {"ann"}
    monkeypatch.setattr(SHARES, "beyond", lambda payer, share: payer in heavy and share == 0.2, raising=False)
    monkeypatch.setattr(SHARES, "owed", lambda *_: 0.0, raising=False)
    turns, gone = turns_of(asyncio.get_running_loop()), []
    turns.later("eve", 0.2, lambda: gone.append("eve"))
    link, trace = FakeLink(), gone
    outbound = make(link, late_share=0.2)
    stream = Stream(outbound, link, "ann", trace, frames=2)
    assert (stream.lane.heavy, stream.lane.payer) == (True, "ann")
    stream.wake()
    outbound.run()  # while it waits
    assert not gone
    await until(lambda: len(gone) == 3)
    assert gone == ["eve", "ann", "ann"]
    stream.left = 1
    stream.wake()
    outbound.close()  # whose tasks run at once
    assert gone == ["eve", "ann", "ann", "ann"]
    charged = []
    monkeypatch.setattr(SHARES, "spend", lambda payer, _: charged.append(payer), raising=False)
    assert stream.lane.charged(lambda: 7) == 7
    assert charged == ["ann"]
