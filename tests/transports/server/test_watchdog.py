"""A client that stands still, over every transport that pushes: what it costs, and how it comes back."""

import pytest

from publishers import ChangeLog, upsert
from publishers.fanout.state import State
from tests.harness.constants import set_bounds
from tests.harness.inside import connections_of, link_of
from transports import Limits, serve
from transports.server.watchdog import Watchdog

VERSIONS, CHANGES, SIZE = 60, 20, 2000
EVENTS = VERSIONS * (CHANGES + 1)
STREAM = [(version, index) for version in range(1, VERSIONS + 1) for index in range(CHANGES + 1)]
BODIES = """subscription { onChange { version index body } }"""


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "shop", sync="os", fill_step=65_536, ring_events=64) as log:
        yield log


@pytest.fixture
def server(log):
    # The pings of GraphQL are no bound here: the socket alone is.
    set_bounds(fence_events=10**6)
    limits = Limits(stall_timeout=60.0, keepalive=60.0)
    with serve(log, limits=limits) as server:
        yield server


def positions(events):
    return [(int(event["version"]), event["index"]) for event in events]


def fill(log):
    for version in range(VERSIONS):
        log.commit([upsert("order", f"{version}-{n}", {"value": "z" * SIZE}) for n in range(CHANGES)])


async def stall(log, server, stuck, good, until):
    """Stands still while everything is committed, and goes on when the log is far ahead.

    Args:
        log: The log.
        server: Its server.
        stuck: The client that stands still; it has subscribed.
        good: Reads everything with another one.
        until: Waits for a condition.
    """
    stuck.socket.transport.pause_reading()
    fill(log)
    assert positions(await good) == STREAM, "its neighbour has everything"
    before = log.statistics()
    slow = max(before.subscriptions, key=lambda one: one.lag or 0)
    held = [link_of(connection).unsent for connection in connections_of(server.application)]
    assert max(held) <= Limits().window_bytes, "what is held for it is bounded"
    ring = before.publishers[0].ring
    assert (ring.events <= 64, slow.position < ring.start) == (True, True), "nothing is kept for it in memory"
    assert slow.lag > EVENTS // 2, "its cursor lags"
    await until(lambda: any(one.state is State.RESYNC for one in log.statistics().subscriptions))
    stuck.socket.transport.resume_reading()


async def test_over_our_protocol_it_catches_up_from_the_log(log, server, dial, until):
    """E59: memory bounded, the cursor lags, and later it has everything from the WAL, each once and in order."""
    async with dial(server.url) as stuck, dial(server.url) as good:
        for wire in (stuck, good):
            await wire.init()
            await wire.subscribe(credits=10**6, content="BODY")
        await stall(log, server, stuck, good.events(EVENTS), until)
        events = await stuck.events(EVENTS)
        assert positions(events) == STREAM
        assert events[-1]["body"] == {"value": "z" * SIZE}
        assert log.statistics().frames_read > VERSIONS // 2, "what no ring has any more is read"
        while (await stuck.expect("checkpoint"))["items"][0]["state"] != "LIVE":
            pass
        log.commit([upsert("order", "new", {})])
        assert len(await stuck.events(2)) == len(await good.events(2)) == 2


async def test_over_graphql_it_catches_up_from_the_log(log, server, graphql, until):
    """E59: likewise, although the protocol has no message for demand."""
    async with graphql(server) as stuck, graphql(server) as good:
        for wire in (stuck, good):
            await wire.init()
            await wire.subscribe(BODIES)
            await wire.settled()
        await stall(log, server, stuck, good.events(EVENTS), until)
        events = await stuck.events(EVENTS)
        assert positions(events) == STREAM
        assert events[-1]["body"] == {"value": "z" * SIZE}
        assert log.statistics().frames_read > VERSIONS // 2, "what no ring has any more is read"
        await until(lambda: all(one.state is State.LIVE for one in log.statistics().subscriptions))
        log.commit([upsert("order", "new", {})])
        assert len(await stuck.events(2)) == len(await good.events(2)) == 2


class Turns:
    """A loop that turns where the test says so."""

    def __init__(self):
        self.due = []

    def call_later(self, seconds, look):
        self.due.append(look)


def test_a_client_that_takes_little_by_little_is_not_cut_off():
    """E59: only a whole timeout without progress counts, however many looks in between have seen none."""
    loop, taken, cut = Turns(), [0], []
    Watchdog(loop, 4.0, lambda: taken[0], lambda: cut.append(True)).start()
    for turn in range(40):
        taken[0] += turn % 3 == 0
        loop.due.pop()()
    assert not cut
    for _ in range(4):
        loop.due.pop()()
    assert (cut, loop.due) == ([True], [])
