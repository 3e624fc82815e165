import contextvars

from flow import UNBOUNDED, Drain
from tests.flow.probes import BatchProbe, ManualExecutor, Probe, QueueFeed


def started(probe, feed, **options):
    drain = Drain(probe, feed, **options)
    drain.start()
    return drain


def test_a_batch_subscriber_gets_what_one_pull_brought_in_one_call():
    feed = QueueFeed(range(10), complete=True)
    probe = BatchProbe(first=4)
    started(probe, feed)
    assert probe.batches == [[0, 1, 2, 3]]
    probe.request(100)
    assert probe.batches == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    assert probe.completed
    assert "next" not in probe.signals


def test_on_an_executor_a_turn_is_one_batch():
    where = ManualExecutor()
    probe = BatchProbe(first=UNBOUNDED)
    started(probe, QueueFeed(range(10)), executor=where, turn=4)
    sizes = []
    while where.run_one():
        sizes.append([len(batch) for batch in probe.batches])
    assert sizes == [[4], [4, 4], [4, 4, 2], [4, 4, 2]]


def test_a_batch_with_none_in_it_is_delivered_up_to_there():
    probe = BatchProbe(first=9)
    started(probe, QueueFeed([1, 2, None, 3]))
    assert probe.items == [1, 2]
    assert isinstance(probe.error, TypeError)
    probe = BatchProbe(first=9)
    started(probe, QueueFeed([None, 3]))
    assert probe.signals == ["subscribe", "error"]


def test_a_raising_batch_subscriber_is_dropped(dropped):
    class Raising(BatchProbe):
        def on_next_batch(self, items, /):
            raise ValueError

    drain = started(Raising(first=9), QueueFeed([1, 2]))
    assert drain.ended
    assert len(dropped.errors) == 1


def test_a_lazy_sequence_that_raises_while_it_is_iterated_is_the_feeds_failure(dropped):
    class Lazy(tuple):
        __slots__ = ()

        def __iter__(self):
            raise OSError("corrupt")

    class Feed(QueueFeed):
        def pull(self, limit, /):
            return Lazy((1, 2))

    probe = Probe(first=9)
    started(probe, Feed())
    assert isinstance(probe.error, OSError)
    assert dropped.errors == []


def test_what_is_told_comes_without_demand_and_the_last_of_a_key_wins():
    where = ManualExecutor()
    probe = Probe()
    drain = started(probe, QueueFeed([1]), executor=where)
    where.run_all()
    drain.notify("state", lambda s: s.items.append("LIVE"))
    drain.notify("lag", lambda s: s.items.append("lag"))
    drain.notify("state", lambda s: s.items.append("RESYNC"))
    assert probe.items == []
    assert where.run_all() == 1
    assert probe.items == ["lag", "RESYNC"]
    assert drain.demand == 0


def test_what_a_feed_tells_from_inside_a_pull_comes_before_the_elements_of_that_pull():
    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed)
    feed.on_pull = lambda: drain.notify("lag", lambda s: s.items.append("lag")) if feed._items else None
    feed.push(1, 2)
    drain.signal()
    assert probe.items == ["lag", 1, 2]


def test_what_is_told_comes_before_the_end():
    where = ManualExecutor()
    probe = Probe()
    drain = started(probe, QueueFeed(), executor=where)
    drain.notify("state", lambda s: s.items.append("RESYNC"))
    drain.fail(OSError())
    where.run_all()
    assert probe.items == ["RESYNC"]
    assert probe.error is not None


def test_raising_in_what_is_told_counts_as_raising_anywhere(dropped):
    def explode(subscriber):
        raise ValueError

    feed = QueueFeed()
    probe = Probe(first=9)
    drain = started(probe, feed)
    feed.push(1)
    drain.notify("state", explode)
    assert drain.ended
    assert feed.released == 1
    assert len(dropped.errors) == 1
    assert probe.items == []


def test_signals_see_the_context_of_the_start():
    variable = contextvars.ContextVar("variable", default="nothing")
    seen = []
    feed = QueueFeed()
    probe = Probe(first=9, on_item=lambda item: seen.append(variable.get()))
    token = variable.set("at start")
    drain = started(probe, feed)
    variable.reset(token)
    feed.push(1)
    drain.signal()
    assert seen == ["at start"]


def test_what_is_told_while_something_is_told_needs_no_further_wake():
    where = ManualExecutor()
    probe = Probe()
    drain = started(probe, QueueFeed([]), executor=where)
    where.run_all()

    def first(subscriber):
        subscriber.items.append("first")
        drain.notify("second", lambda other: other.items.append("second"))

    drain.notify("first", first)
    where.run_all()
    assert probe.items == ["first", "second"]


def test_who_cancels_in_a_call_before_the_end_is_not_told_the_end():
    """E46: the end was found before, and is not signalled any more."""

    class Feed(QueueFeed):
        def outcome(self):
            found = super().outcome()
            if found is not None:
                drain.notify("state", lambda one: one.subscription.cancel(), wake=False)
            return found

    probe = Probe(first=9)
    drain = Drain(probe, Feed([1], complete=True))
    drain.start()
    assert (probe.signals, drain.ended) == (["subscribe", "next"], True)
