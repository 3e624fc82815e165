from datetime import timedelta
from threading import Event, Thread

import pytest
from pyspark.errors import StreamingQueryException

import flow
from publishers.errors import SubscriberStalled
from publishers.spark import ChangeSink
from publishers.spark.queries import gate_of
from tests.harness.inside import service_of

pytestmark = pytest.mark.timeout(600)


class Reader:
    """Takes what it asked for, and asks only when told to."""

    def __init__(self):
        self.taken = []
        self.ended = Event()

    def on_subscribe(self, subscription):
        self.subscription = subscription

    def on_next(self, change):
        self.taken.append(change.key)

    def on_error(self, error):
        self.ended.set()

    def on_complete(self):
        self.ended.set()


@pytest.fixture
def slow(log):
    """A subscriber that lets the log get ahead by 3 changes and takes nothing by itself."""
    reader = Reader()
    log.changes().subscribe(reader, executor=flow.INLINE, max_lag=3, name="slow reader")
    return reader


@pytest.fixture
def waiting(log, monkeypatch):
    """Is set when a sink asks for admission a second time, which `slow` keeps it from getting."""
    asked, second = [], Event()
    admit = log.serving.admit

    def watched(_port, stopped, stall_timeout):
        asked.append(stopped)
        if len(asked) == 2:
            second.set()
        admit(stopped=stopped, stall_timeout=stall_timeout)

    monkeypatch.setattr(type(log.serving), "admit", watched)
    return second


def test_a_gating_subscriber_holds_the_query_back_until_it_takes(source, log, slow, waiting, stored):
    source.add_numbers(2, 5)
    query = source.start(ChangeSink(log, entity_type="n", key="id", tell_schema=False))
    assert waiting.wait(180)
    assert query.isActive
    assert log.head.version == 2
    slow.subscription.request(6)
    assert query.awaitTermination(180)
    assert slow.taken == [None, "0", "1", "2", "3", "4"]
    assert [change.version for change in stored(log)] == [1] * 5 + [2] * 5


def test_a_subscriber_that_leaves_lets_the_query_go_on(source, log, slow, waiting, stored):
    source.add_numbers(2, 5)
    query = source.start(ChangeSink(log, entity_type="n", key="id", tell_schema=False))
    assert waiting.wait(180)
    slow.subscription.cancel()
    assert query.awaitTermination(180)
    assert len(stored(log)) == 10


def test_a_subscriber_that_stalls_fails_the_query_and_is_named(source, log, slow):
    source.add_numbers(2, 5)
    sink = ChangeSink(log, entity_type="n", key="id", tell_schema=False, stall_timeout=0.3)
    query = source.start(sink)
    with pytest.raises(
        StreamingQueryException, match=r"subscriber slow reader lags 6 changes \(max_lag is 3\)"
    ):
        query.awaitTermination(180)
    assert isinstance(sink.error, SubscriberStalled)
    assert log.head.version == 2


def test_one_that_is_not_behind_admits_a_batch_of_any_size(source, log, slow, stored):
    source.add_numbers(1, 100)
    source.run(ChangeSink(log, entity_type="n", key="id", tell_schema=False, stall_timeout=0))
    assert len(stored(log)) == 100


def test_stopping_by_the_sink_opens_the_gate_and_ends_without_an_error(source, log, slow, waiting, stored):
    source.add_numbers(4, 5)
    sink = ChangeSink(log, entity_type="n", key="id", tell_schema=False)
    query = source.start(sink)
    assert waiting.wait(180)
    stopper = Thread(target=sink.stop, args=(query,))
    stopper.start()
    stopper.join(180)
    assert not stopper.is_alive()
    assert not query.isActive
    assert query.exception() is None
    assert not gate_of(str(query.id)).is_set()
    slow.subscription.cancel()
    source.run(sink)
    assert [int(change.key) for change in stored(log)] == list(range(20))


def test_stopping_by_one_sink_opens_the_gates_of_all_sinks_of_the_query(source, log, slow, waiting):
    source.add_numbers(2, 5)
    idle = ChangeSink(log, entity_type="n", key="id", tell_schema=False, name="idle")
    busy = ChangeSink(log, entity_type="n", key="id", tell_schema=False, name="busy")
    query = source.start(lambda frame, batch: (busy(frame, batch), idle)[0])
    assert waiting.wait(180)
    idle.stop(query)
    assert not query.isActive
    assert query.exception() is None


def test_closing_the_log_ends_the_wait_and_fails_the_query(source, log, slow, waiting):
    source.add_numbers(2, 5)
    query = source.start(ChangeSink(log, entity_type="n", key="id", tell_schema=False))
    assert waiting.wait(180)
    Thread(target=log.close).start()
    with pytest.raises(StreamingQueryException, match="the change log is closed"):
        query.awaitTermination(180)


@pytest.mark.parametrize("most", [12, timedelta(seconds=0.2)])
def test_the_input_of_spark_follows_a_slow_gate_and_never_a_subscriber_without_one(source, log, most):
    """The design's section 7: ahead of the gate is what it allows and one batch, however fast the source is."""
    rows, batches = 20, 6
    gate, other, ahead = Reader(), Reader(), []
    log.changes().subscribe(gate, executor=flow.INLINE, max_lag=most)
    log.changes().subscribe(other, executor=flow.INLINE)
    sink = ChangeSink(log, entity_type="n", key="id", tell_schema=False)
    source.add_numbers(batches, rows)

    def commit(frame, batch):
        sink(frame, batch)
        ahead.append(batch * (rows + 1) + rows + 1 - len(gate.taken))

    query = source.start(commit)
    while query.isActive:  # it takes one change at a time, and only while Spark waits for it
        if service_of(log).admission._moved._waiters:
            gate.subscription.request(1)
        Event().wait(0.001)
    assert query.awaitTermination(180)
    assert query.exception() is None
    assert len(ahead) == batches
    assert other.taken == []
    assert len(gate.taken) > rows  # or Spark would not have gone on
    if isinstance(most, int):
        assert max(ahead) == most + rows + 1
        assert min(ahead[1:]) >= most + rows - 1  # a change is asked for while the gate opens, at most
    else:
        assert max(ahead) <= 2 * (rows + 1)
    assert sink.statistics().gate_seconds > 0
