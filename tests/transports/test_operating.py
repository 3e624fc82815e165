"""What an operator of the serving process does to remote subscribers."""

import asyncio

import flow
from penstock_cdc.types import State
from publishers import ChangeLog, Position, upsert
from tests.publishers.support import QUICK
from transports import connect, serve

DEADLINE = 120.0


class Reader:
    """Keeps the positions that come."""

    def __init__(self):
        self.positions = []
        self.errors = []
        self.subscription = None

    def on_subscribe(self, subscription):
        self.subscription = subscription
        subscription.request(flow.UNBOUNDED)

    def on_next(self, change):
        self.positions.append((change.version, change.index))

    def on_error(self, error):
        self.errors.append(error)

    def on_complete(self):
        raise AssertionError


def expected(first, last):
    return [(version, index) for version in range(first, last + 1) for index in (0, 1)]


async def test_a_remote_subscriber_is_paused_resumed_and_reset_where_it_is_served(tmp_path, until):
    """F63: nothing is lost or repeated over the pause, its checkpoints go on, and its neighbour on the connection does too."""
    with ChangeLog.open(tmp_path / "log", **QUICK, ring_events=8) as log:
        server = serve(log, port=0)
        try:
            async with connect(server.url) as remote:
                held, other = Reader(), Reader()
                remote.changes(window=4, heartbeat=0.02).subscribe(held)
                await until(lambda: held.subscription and log.statistics().subscriptions)
                (one,) = log.statistics().subscriptions
                remote.changes().subscribe(other)
                await until(lambda: len(log.statistics().subscriptions) == 2)
                for number in range(5):
                    await log.commit_async([upsert("order", str(number), {})])
                await until(lambda: held.positions == other.positions == expected(1, 5))
                assert log.pause(one.id)
                for number in range(30):
                    await log.commit_async([upsert("order", str(number), {})])
                await until(lambda: other.positions == expected(1, 35))
                states = {each.id: each.state for each in log.statistics().subscriptions}
                assert states[one.id] is State.PAUSED
                assert held.positions == expected(1, 5)
                assert log.position_of(held.subscription.cursor) == Position(6)
                assert log.resume(one.id)
                await until(lambda: held.positions == expected(1, 35))
                assert log.seek(one.id, Position(20))
                await until(lambda: held.positions == expected(1, 35) + expected(20, 35))
                await log.commit_async([upsert("order", "last", {})])
                await until(lambda: held.positions[-4:] == expected(35, 36))
                log.pause(one.id)
                log.unsubscribe(one.id)
                await until(lambda: len(log.statistics().subscriptions) == 1)
                assert held.errors == other.errors == []
        finally:
            await asyncio.to_thread(server.stop)
