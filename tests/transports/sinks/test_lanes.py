"""Several requests in flight: what is sent at once, what keeps its order, and what is sent again."""

import threading
from zlib import crc32

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import Criterion, truncate, upsert
from publishers.views.view import Images
from tests.publishers.support import wait_until
from tests.transports.sinks.receivers import OK, Receiver
from tests.transports.sinks.targets import rigged
from transports.sinks import (
    ItemResult,
    ItemVerdict,
    SinkOptions,
    SinkRunner,
    SinkState,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)
from transports.sinks.webhook import WebhookSink


class ManyTargets:
    """Takes several batches at once, each by a plan that looks at it."""

    stores_position = False
    idempotent = True
    partial = True
    ordered = True
    parallel = True
    images: Images | None = None

    def __init__(self):
        self.plan = lambda _batch: None
        self.taken = []
        self.tried = []
        self._lock = threading.Lock()

    def open(self, context):
        self.lanes = context.in_flight

    def write(self, batch):
        with self._lock:
            self.tried.append(batch)
        told = self.plan(batch)
        if isinstance(told, Exception):
            raise told
        gone = {one.place for one in told or ()}
        with self._lock:
            self.taken += [one for place, one in enumerate(batch.changes) if place not in gone]
        return told

    def flush(self): ...
    def move(self, position): ...
    def close(self): ...
    def alive(self):
        return True

    def told(self, key):
        return [one.version for one in self.taken if one.key == key]


def several(path, target=None, **options):
    given = {"in_flight": 3, "ordering": "key", "batch_changes": 2, "criteria": ORDERS, **options}
    return rigged(path, target or ManyTargets(), **given)


ORDERS = Criterion(entity_types={"order"})
A, B, C = (
    next(key for key in "abcdefghijklmnop" if crc32(f"order\0{key}".encode()) % 3 == lane)
    for lane in range(3)
)
"""Keys of three lanes."""


@pytest.mark.parametrize("ordering", ["key", "none"])
def test_as_many_requests_as_are_wanted_are_in_flight_at_once(tmp_path, ordering):
    """F162: each of them waits here until all have come."""
    with several(tmp_path, ordering=ordering) as rig:
        meeting = threading.Barrier(3)
        rig.target.plan = lambda _batch: meeting.wait(60) and None
        rig.commit(*range(6)) if ordering == "none" else rig.commit(A, B, C, A, B, C)
        rig.until(lambda: len(rig.target.taken) == 6)
        assert rig.target.lanes == 3
        assert all(len(batch) == 2 for batch in rig.target.tried)


def test_changes_of_a_key_arrive_in_their_order_whatever_fails(tmp_path):
    """F162: a lane stops at what fails, others go on, and only what is missing is sent again."""
    with several(tmp_path) as rig:
        failing = [True]

        def plan(batch):
            return TargetUnavailable("down") if failing[0] and batch.changes[0].key == A else None

        rig.target.plan = plan
        for _ in range(4):
            rig.commit(A, B)
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert rig.target.told(B)
        assert rig.target.told(A) == []
        failing[0] = False
        rig.later(2.0)
        rig.drained()
        assert (rig.target.told(A), rig.target.told(B)) == ([1, 2, 3, 4], [1, 2, 3, 4])
        assert rig.runner.counters.changes == len(rig.target.taken)


def test_a_change_behind_one_of_its_key_that_is_to_be_sent_again_waits(tmp_path):
    """F162."""
    with several(tmp_path, batch_changes=1) as rig:
        plans = {1: [[ItemResult(0, ItemVerdict.RETRY, "busy")]]}
        rig.target.plan = lambda batch: plans.get(batch.changes[0].version, []) and plans[1].pop()
        rig.commit(A)
        rig.commit(A)
        rig.commit(A)
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert rig.target.told(A) == []
        assert "busy" in rig.runner.statistics().last_error
        rig.later(2.0)
        rig.drained()
        assert rig.target.told(A) == [1, 2, 3]


def test_what_concerns_all_keys_stands_between_what_comes_before_and_after(tmp_path):
    """F162: a TRUNCATE is sent when everything before it is taken, and nothing behind it before that."""
    with several(tmp_path, batch_changes=10) as rig:
        rig.log.commit(
            [upsert("order", str(n), {}) for n in range(5)] + [truncate("order")] + [upsert("order", "z", {})]
        )
        failing = [True]
        rig.target.plan = lambda batch: (
            TargetUnavailable("down") if failing[0] and batch.changes[0].key is None else None
        )
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert sorted(one.key for one in rig.target.taken) == ["0", "1", "2", "3", "4"]
        failing[0] = False
        rig.later(2.0)
        rig.drained()
        assert [one.key for one in rig.target.taken[-2:]] == [None, "z"]


def test_the_same_changes_are_the_same_request_in_each_attempt(tmp_path):
    """F162: so that a receiver can tell what it has."""
    with several(tmp_path, ordering="none") as rig:
        failing = [2]

        def plan(batch):
            if batch.changes[0].key == "3" and failing[0]:
                failing[0] -= 1
                return TargetUnavailable("down", overloaded=True, retry_after=5.0)
            return None

        rig.target.plan = plan
        rig.commit(*range(1, 6))  # pieces of two
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        assert rig.runner.statistics().retry_in == 5.0
        rig.later(6.0)
        rig.until(lambda: failing[0] == 0 and rig.runner.state is SinkState.RETRYING)
        rig.later(6.0)
        rig.drained()
        tries = [batch for batch in rig.target.tried if batch.changes[0].key == "3"]
        assert len(tries) == 3
        assert len({(batch.first, batch.next, batch.changes) for batch in tries}) == 1
        assert [batch.attempt for batch in tries] == [1, 2, 3]


def test_a_piece_that_is_too_large_is_halved_and_a_single_change_is_poison(tmp_path):
    """F162."""
    with several(tmp_path, batch_changes=8, on_reject="drop") as rig:

        def plan(batch):
            large = len(batch) > 1 or batch.changes[0].key == "0"
            return TooLargeForTarget("large") if large else None

        rig.target.plan = plan
        rig.commit(*range(6))
        rig.drained()
        assert {one.key for one in rig.target.taken} == {"1", "2", "3", "4", "5"}
        assert rig.runner.counters.dropped == 1


def test_what_is_refused_in_one_lane_pauses_the_sink_and_the_others_are_not_sent_again(tmp_path):
    """F162."""
    with several(tmp_path, batch_changes=1) as rig:
        refusing = [True]
        rig.target.plan = lambda batch: (
            TargetRefused("never") if refusing[0] and batch.changes[0].key == A else None
        )
        rig.commit(A, B, C)
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert rig.runner.statistics().reason == "never"
        refusing[0] = False
        rig.runner.resume()
        rig.drained()
        assert [len(rig.target.told(key)) for key in (A, B, C)] == [1, 1, 1]


def test_a_sink_that_takes_one_batch_at_a_time_says_so(tmp_path):
    """F162."""
    with rigged(tmp_path) as rig, pytest.raises(InvalidOption, match="in_flight"):
        SinkRunner(rig.log, "other", rig.target, SinkOptions(in_flight=2, ordering="key"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_flight": 0},
        {"in_flight": 65},
        {"in_flight": 2},
        {"ordering": "key"},
        {"in_flight": 2, "ordering": "log"},
        {"on_failure": "cry"},
        {"snapshot": "always"},
    ],
)
def test_options_are_checked(wrong):
    """F162, F124: order by key, or none, is chosen with several in flight, and only then."""
    with pytest.raises(InvalidOption):
        SinkOptions(**wrong)


def test_a_webhook_has_several_connections_and_each_key_its_order(tmp_path):
    """F162: three requests wait at the receiver at once."""
    meeting = threading.Barrier(3)

    def answer(_request):
        meeting.wait(60)
        return OK

    with Receiver() as receiver:
        receiver.otherwise = answer
        hook = WebhookSink(receiver.url, allow=["127.0.0.0/8", "::1/128"])
        with several(tmp_path, hook) as rig:
            for _ in range(2):
                rig.commit(A, B, C, A, B, C)
                wait_until(lambda: rig.runner.step() is None or rig.stored() == rig.log.head)
        assert receiver.connections == 3
        ids = [one.headers["webhook-id"] for one in receiver.received]
        assert len(set(ids)) == len(ids) == 6
