"""What one subscription of a client hands on, and what place it says that it has: without a server."""

from datetime import UTC, datetime

from flow import INLINE
from publishers.model.change import Area, Operation
from publishers.model.position import Position
from tests.publishers.support import Probe
from transports.client.remote_feed import RemoteSubscription
from transports.codec.replies import RemoteChange, RemoteGap
from transports.protocol.client_subscription import ClientSubscription

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


class Connection:
    """A connection that sends nothing."""

    url = "ws://none"
    inherited = None

    def __init__(self):
        self.demanded = 0
        self.forgotten = 0

    def enlist(self, _subscription): ...

    def demand(self, subscription):
        self.demanded = subscription.entry.wanted

    def forget(self, _subscription):
        self.forgotten += 1


class Reader(Probe):
    def __init__(self, first=0):
        super().__init__(first)
        self.gaps = []

    def on_gap(self, gap):
        self.gaps.append((gap.begin_cursor, gap.end_cursor, len(self.changes)))


def begun(reader, window=100):
    made = RemoteSubscription(Connection(), ClientSubscription("a", {"since": "c0"}), window, "jump")
    made.begin(reader, INLINE)
    return made


def change(version):
    return RemoteChange(
        version, 0, 1, MOMENT, Area.DATA, Operation.UPSERT, "order", str(version), cursor=f"c{version}"
    )


def test_the_place_of_a_client_is_behind_what_it_was_given_and_not_behind_what_waits_for_it():
    """F73: else whoever keeps it and comes again misses what was buffered."""
    reader = Reader()
    made = begun(reader)
    made.buffer([change(1), change(2), change(3)], "c9")
    assert made.cursor == "c0"
    for given, place in ((1, "c1"), (2, "c2"), (3, "c9")):
        reader.subscription.request(1)
        assert ([one.version for one in reader.changes], made.cursor) == (list(range(1, given + 1)), place)


def gap(begin, end):
    return RemoteGap(Position(begin), Position(end), f"c{begin}", f"c{end}")


def test_gaps_in_a_row_are_told_as_one_that_reaches_from_the_first_to_the_last():
    """E37: before the change behind them, and none of them is left out."""
    reader = Reader()
    made = begun(reader)
    made.buffer([change(1), gap(2, 5), gap(5, 9), change(9), gap(10, 12)], "c12")
    reader.subscription.request(9)
    assert [one.version for one in reader.changes] == [1, 9]
    assert reader.gaps == [("c2", "c9", 1), ("c10", "c12", 2)]
    assert made.cursor == "c12"


def test_a_cancelled_subscription_is_cancelled_at_the_server_once():
    """F72."""
    reader = Reader(first=5)
    made = begun(reader)
    assert made._log.demanded == 5
    reader.subscription.cancel()
    reader.subscription.cancel()
    made.buffer([change(1)], "c1")
    assert (reader.changes, made._log.forgotten) == ([], 1)
