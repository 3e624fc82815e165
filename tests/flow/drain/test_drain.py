import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import flow
from flow import UNBOUNDED, Drain, Failed
from tests.flow.probes import Probe, QueueFeed, wait_until


def started(probe, feed, **options):
    drain = Drain(probe, feed, **options)
    drain.start()
    return drain


def test_rule_101_never_more_elements_than_requested():
    probe = Probe()
    started(probe, QueueFeed(range(10)))
    assert probe.items == []
    probe.request(1)
    assert probe.items == [0]
    probe.request(1)
    probe.request(2)
    assert probe.items == [0, 1, 2, 3]


def test_rule_101_a_feed_that_gives_too_much_ends_in_an_error():
    class Greedy(QueueFeed):
        def pull(self, limit, /):
            return list(range(limit + 1))

    probe = Probe(first=2)
    feed = Greedy()
    started(probe, feed)
    assert probe.items == []
    assert isinstance(probe.error, RuntimeError)
    assert feed.released == 1


def test_rule_102_fewer_than_requested_if_the_stream_ends():
    probe = Probe(first=10)
    started(probe, QueueFeed(range(3), complete=True))
    assert probe.items == [0, 1, 2]
    assert probe.completed


def test_rule_103_signals_are_serial_while_threads_signal_and_request():
    feed = QueueFeed()
    probe = Probe()
    with ThreadPoolExecutor(4) as pool:
        drain = started(probe, feed, executor=pool)
        wait_until(lambda: probe.subscription)

        def work(start):
            for number in range(250):
                feed.push(start + number)
                drain.signal()
                drain.request(1)

        threads = [threading.Thread(target=work, args=(k * 1000,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: len(probe.items) == 1000)
    assert probe.overlaps == 0
    for k in range(4):
        own = [item for item in probe.items if item // 1000 == k]
        assert own == sorted(own)


def test_rule_104_a_raising_feed_is_told_and_nothing_escapes():
    class Broken(QueueFeed):
        def pull(self, limit, /):
            raise OSError("disk")

    probe = Probe(first=1)
    feed = Broken()
    drain = started(probe, feed)
    assert isinstance(probe.error, OSError)
    assert probe.signals == ["subscribe", "error"]
    assert drain.ended
    assert feed.released == 1


def test_rule_104_a_feed_that_cannot_tell_its_outcome_has_failed():
    class Broken(QueueFeed):
        def outcome(self):
            raise OSError("disk")

    probe = Probe()
    started(probe, Broken())
    assert isinstance(probe.error, OSError)


def test_rule_105_and_209_completion_needs_no_demand():
    probe = Probe()
    started(probe, QueueFeed(complete=True))
    assert probe.signals == ["subscribe", "complete"]


def test_extra_completes_with_zero_demand_left():
    probe = Probe(first=3)
    started(probe, QueueFeed(range(3), complete=True))
    assert probe.signals == ["subscribe", "next", "next", "next", "complete"]


def test_rule_106_the_subscription_has_ended_when_the_terminal_signal_comes():
    seen = []

    class Curious(Probe):
        def on_complete(self):
            seen.append(drain.ended)
            self.request(5)
            self.cancel()

    feed = QueueFeed(complete=True)
    drain = Drain(Curious(first=1), feed)
    drain.start()
    assert seen == [True]
    assert feed.released == 1


def test_rule_107_nothing_follows_the_terminal_signal():
    feed = QueueFeed(range(2), complete=True)
    probe = Probe(first=10)
    drain = started(probe, feed)
    feed.push(7)
    drain.signal()
    drain.request(5)
    drain.request(0)
    drain.fail(ValueError())
    drain.notify("state", lambda s: s.items.append("told"))
    drain.cancel()
    assert probe.signals == ["subscribe", "next", "next", "complete"]


def test_extra_silence_after_an_error():
    feed = QueueFeed(range(5), complete=True)
    probe = Probe()
    drain = started(probe, feed)
    drain.fail(ValueError("first"))
    drain.fail(ValueError("second"))
    drain.request(5)
    assert probe.signals == ["subscribe", "error"]
    assert str(probe.error) == "first"


def test_rule_108_cancelling_discards_what_was_already_pulled():
    probe = Probe(first=UNBOUNDED, on_item=lambda item: item == 2 and probe.cancel())
    feed = QueueFeed(range(100), complete=True)
    started(probe, feed)
    assert probe.items == [0, 1, 2]
    assert probe.signals[-1] == "next"
    assert feed.released == 1


def test_extra_silence_after_cancel_terminal_signals_included():
    feed = QueueFeed()
    probe = Probe(first=5)
    drain = started(probe, feed)
    probe.cancel()
    feed.push(1)
    feed.end(flow.COMPLETED)
    drain.signal()
    drain.fail(ValueError())
    drain.request(-1)
    assert probe.signals == ["subscribe"]


def test_rule_109_only_a_null_subscriber_raises():
    with pytest.raises(TypeError, match=r"1\.9"):
        Drain(None, QueueFeed())  # type: ignore[arg-type]


def test_rule_109_on_subscribe_comes_first_even_if_the_stream_has_failed_before():
    feed = QueueFeed([1, 2])
    probe = Probe(first=2)
    drain = Drain(probe, feed)
    drain.fail(ValueError("refused"))
    drain.signal()
    drain.notify("state", lambda s: s.items.append("told"))
    assert probe.signals == []
    drain.start()
    assert probe.signals == ["subscribe", "error"]
    assert probe.items == ["told"]


def test_rule_212_on_subscribe_comes_once():
    probe = Probe()
    drain = started(probe, QueueFeed())
    drain.start()
    assert probe.signals == ["subscribe"]


def test_a_wrapper_can_be_handed_out_as_the_subscription():
    class Wrapper:
        def request(self, n, /):
            drain.request(n)

        def cancel(self):
            drain.cancel()

    wrapper = Wrapper()
    probe = Probe(first=1)
    drain = Drain(probe, QueueFeed([1]))
    drain.start(wrapper)
    assert probe.subscription is wrapper
    assert probe.items == [1]


def test_cancelled_before_the_start_nothing_is_signalled():
    feed = QueueFeed([1])
    probe = Probe(first=1)
    drain = Drain(probe, feed)
    drain.cancel()
    drain.start()
    assert probe.signals == []
    assert feed.released == 1


def test_rule_213_a_subscriber_that_raises_is_cancelled_and_reported_and_gets_no_on_error(dropped):
    def explode(item):
        raise ValueError(item)

    probe = Probe(first=5, on_item=explode)
    feed = QueueFeed(range(5), complete=True)
    drain = started(probe, feed)
    assert probe.signals == ["subscribe", "next"]
    assert [type(error) for error in dropped.errors] == [ValueError]
    assert drain.ended
    assert feed.released == 1
    drain.request(1)
    drain.signal()
    assert probe.signals == ["subscribe", "next"]


@pytest.mark.parametrize("method", ["on_subscribe", "on_error", "on_complete"])
def test_rule_213_raising_in_any_other_signal_is_reported_too(dropped, method):
    def explode(*_):
        raise LookupError(method)

    probe = Probe(first=1)
    setattr(probe, method, explode)
    feed = QueueFeed(complete=method == "on_complete")
    drain = started(probe, feed)
    if method == "on_error":
        drain.fail(ValueError())
    assert [type(error) for error in dropped.errors] == [LookupError]
    assert drain.ended
    assert feed.released == 1
    assert "next" not in probe.signals


def test_rule_213_a_raising_subscriber_harms_no_neighbour(dropped):
    def explode(item):
        raise ValueError(item)

    feeds = [QueueFeed() for _ in range(3)]
    probes = [Probe(first=9), Probe(first=9, on_item=explode), Probe(first=9)]
    drains = [started(probe, feed) for probe, feed in zip(probes, feeds, strict=True)]
    for number in range(3):
        for feed, drain in zip(feeds, drains, strict=True):
            feed.push(number)
            drain.signal()
    assert [probe.items for probe in probes] == [[0, 1, 2], [0], [0, 1, 2]]
    assert len(dropped.errors) == 1


def test_a_feed_that_fails_to_release_is_reported_and_the_end_is_told(dropped):
    class Sticky(QueueFeed):
        def release(self):
            raise OSError("stuck")

    probe = Probe()
    started(probe, Sticky(complete=True))
    assert probe.completed
    assert [type(error) for error in dropped.errors] == [OSError]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass_after_cancelling(interrupt):
    def explode(item):
        raise interrupt

    probe = Probe(on_item=explode)
    feed = QueueFeed(range(3))
    drain = started(probe, feed)
    with pytest.raises(interrupt):
        drain.request(3)
    assert drain.ended
    assert feed.released == 1
    drain.signal()
    assert probe.items == [0]


def test_cancelled_error_is_a_cancellation_and_never_an_error(dropped):
    def cancelled(item):
        raise asyncio.CancelledError

    probe = Probe(first=3, on_item=cancelled)
    feed = QueueFeed(range(3))
    drain = started(probe, feed)
    assert drain.ended
    assert feed.released == 1
    assert probe.signals == ["subscribe", "next"]
    assert dropped.errors == []

    class Cancelled(QueueFeed):
        def pull(self, limit, /):
            raise asyncio.CancelledError

    probe = Probe(first=1)
    drain = started(probe, Cancelled())
    assert drain.ended
    assert probe.signals == ["subscribe"]


def test_none_is_not_an_element():
    probe = Probe(first=9)
    feed = QueueFeed([1, 2, None, 3])
    started(probe, feed)
    assert probe.items == [1, 2]
    assert isinstance(probe.error, TypeError)
    assert feed.released == 1


def test_an_error_overtakes_what_was_pulled_but_completion_does_not():
    probe = Probe(first=UNBOUNDED, on_item=lambda item: item == 1 and drain.fail(OSError()))
    drain = Drain(probe, QueueFeed(range(100)))
    drain.start()
    assert probe.items == [0, 1]
    assert isinstance(probe.error, OSError)

    patient = Probe(first=2)
    feed = QueueFeed(range(4))
    drain = started(patient, feed)
    feed.end(flow.COMPLETED)
    drain.signal()
    assert not patient.completed
    patient.request(2)
    assert patient.items == [0, 1, 2, 3]
    assert patient.completed


def test_a_failed_outcome_is_told_with_the_same_object():
    failure = OSError("disk")
    feed = QueueFeed()
    probe = Probe()
    drain = started(probe, feed)
    feed.end(Failed(failure))
    drain.signal()
    assert probe.error is failure


@pytest.mark.parametrize("where", ["on_subscribe", "outcome"])
def test_cancelled_error_anywhere_else_is_a_cancellation_too(dropped, where):
    def cancelled(*_):
        raise asyncio.CancelledError

    probe, feed = Probe(), QueueFeed()
    setattr(probe if where == "on_subscribe" else feed, where, cancelled)
    drain = started(probe, feed)
    assert drain.ended
    assert feed.released == 1
    assert not {"next", "error", "complete"} & set(probe.signals)
    assert dropped.errors == []


def test_a_turn_has_at_least_one_element():
    with pytest.raises(ValueError, match="turn: 0"):
        Drain(Probe(), QueueFeed(), turn=0)
