"""One change at a time from the log: what is left of a frame is at hand, counts as unread, and is kept for nobody."""

import gc
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from penstock_cdc.errors import HistoryPruned, LogClosed
from publishers import Content, Criterion, Position
from publishers.blocks.block import Block
from publishers.fanout.counters import DeliveryCounters
from publishers.fanout.resync_slice import Remainder
from publishers.wal import Reader
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import Probe, everything, fill, opened, wait_until


@pytest.fixture
def log():
    with opened(ring_events=2) as log:
        fill(log, 3, 9)  # ten changes each
        yield log


def reading(log, *wishes, **options):
    """A subscriber at the beginning of the log."""
    probe = Probe()
    log.changes(*wishes, since=Position(1), **options).subscribe(probe, executor=flow.INLINE)
    return probe


def step(probe, count=1):
    for _ in range(count):
        probe.request(1)
        probe.wait_for(probe.requested)


@pytest.mark.parametrize("content", list(Content))
@pytest.mark.parametrize("keys", [None, ["3", "7", "8"], ["8"]])
def test_one_that_asks_for_one_at_a_time_gets_what_others_get(log, content, keys):
    """F63, invariant 5: whenever it rests, its position is behind the last one, and all that it was given is counted."""
    wishes = [] if keys is None else [Criterion(keys=keys)]
    truth = log.history(wishes or None, limit=1000, content=content).changes
    probe = reading(log, *wishes, until=3, content=content)
    for number, change in enumerate(truth, 1):
        step(probe)
        assert probe.changes == list(truth[:number])
        assert probe.subscription.checkpoint().position > change.position
        assert probe.subscription.delivered == number
        wait_until(lambda number=number: log.statistics().delivered.changes == number)
    probe.wait_for_end()
    assert probe.completed
    assert probe.clean


def test_a_frame_of_many_changes_is_made_into_objects_some_at_a_time():
    with opened(ring_events=2) as log:
        fill(log, 2, 150)
        probe = reading(log, until=2)
        step(probe, 302)
        probe.wait_for_end()
        assert probe.positions == everything(log)


def test_at_rest_nothing_of_the_frame_is_kept():
    """E31: it goes on from the log if nobody else has the frame."""

    def frames():
        return {one for one in gc.get_objects() if isinstance(one, Block) and one.version == 1}

    earlier = frames()  # which tests before it left
    with opened(ring_events=2, replay_bytes=1) as log:
        fill(log, 3, 9)
        probe = reading(log, until=3)
        step(probe, 5)
        assert probe.subscription._reader.rest is not None
        service_of(log).frames.clear()
        probe.changes.clear()
        gc.collect()
        assert frames() <= earlier
        step(probe, 25)
        probe.wait_for_end()
        assert probe.positions == everything(log)


def test_a_frame_of_which_nobody_has_anything_any_more_is_read_again(log):
    frames = service_of(log).frames
    probe = reading(log)
    step(probe, 4)
    rest = probe.subscription._reader.rest
    rest._block = lambda: None
    step(probe, 3)
    assert probe.subscription._reader.rest is not rest
    assert probe.positions == everything(log)[:7]
    assert frames.nbytes


@pytest.mark.parametrize("place", [Position(1), Position(1, 7), Position(3, 2)])
def test_after_a_seek_it_goes_on_there(log, place):
    """F62: also when it comes back to where it was."""
    probe = reading(log)
    step(probe, 4)
    probe.subscription.seek(place)
    step(probe, 5)
    assert probe.positions[4:] == [one for one in everything(log) if one >= place][:5]


def test_one_that_seeks_in_on_next_gets_nothing_in_between(log):
    class Seeking(Probe):
        def take(self, change):
            super().take(change)
            if len(self.positions) == 5:
                self.subscription.seek(Position(3, 4))

    probe = Seeking(first=1, each=1)
    log.changes(since=Position(1), until=3).subscribe(probe, executor=flow.INLINE)
    probe.wait_for_end()
    truth = everything(log)
    assert probe.positions == truth[:5] + truth[24:]


@pytest.mark.parametrize("then", [1, 4])
def test_a_pause_keeps_the_rest_for_later(log, then):
    probe = reading(log)
    step(probe, 3)
    probe.subscription.pause()
    probe.request(then)
    assert len(probe.positions) == 3
    probe.subscription.resume()
    probe.wait_for(3 + then)
    assert probe.positions == everything(log)[: 3 + then]


def test_a_log_that_closes_in_the_middle_of_a_frame_ends_it_there(log):
    """Invariant 11."""
    probe = reading(log)
    step(probe, 14)
    log.close()
    probe.wait_for_end()
    assert isinstance(probe.error, LogClosed)
    assert len(probe.positions) == 14
    assert probe.error.position == Position(2, 4)


def test_one_that_is_cancelled_inside_is_counted_as_far_as_it_came(log):
    class Leaving(Probe):
        def take(self, change):
            super().take(change)
            if len(self.positions) == 15:
                self.subscription.cancel()

    probe = Leaving(first=1, each=1)
    log.changes(since=Position(1)).subscribe(probe, executor=flow.INLINE)
    wait_until(lambda: not log.statistics().subscriptions)
    assert len(probe.positions) == 15
    wait_until(lambda: log.statistics().delivered.changes == 15)


@settings(max_examples=scaled(30), deadline=None)
@given(st.data())
def test_however_much_is_asked_for_at_a_time_everything_comes_once_and_in_order(data):
    """Invariant 6: over frames of any size, parts of transactions among them, with seeks, and frames that are dropped."""
    with opened(ring_events=3, max_change_bytes=2_000, frame_bytes=2_000) as log:
        for _ in range(data.draw(st.integers(1, 4), "versions")):
            fill(log, 1, data.draw(st.sampled_from([1, 9, 70, 150]), "changes"))
        truth = everything(log)
        probe = reading(log, until=log.visible)
        place = 0
        while place < len(truth):
            act = data.draw(st.sampled_from(["one", "one", "many", "seek", "drop"]), "act")
            if act == "seek":
                place = data.draw(st.integers(0, len(truth) - 1), "to")
                probe.subscription.seek(truth[place])
            elif act == "drop":
                service_of(log).frames.clear()
            else:
                count = min(data.draw(st.integers(1, 40), "count"), len(truth) - place)
                before = len(probe.positions)
                if act == "one":
                    step(probe, count)
                else:
                    probe.request(count)
                    probe.wait_for(before + count)
                assert probe.positions[before:] == truth[place : place + count]
                place += count
        probe.wait_for_end()
        assert probe.clean


def test_behind_the_last_change_of_a_frame_there_is_nothing(log):
    probe = reading(log)
    step(probe, 2)
    rest = probe.subscription._reader.rest
    assert isinstance(rest, Remainder)
    taken = [rest.take() for _ in range(8)]
    assert [one.position for one in taken] == everything(log)[2:10]
    assert rest.next == Position(2)
    assert rest.take() is None
    counters = DeliveryCounters(9)
    rest.pause(counters)
    rest.pause(counters)
    assert counters.statistics().changes == 8
    other = Remainder(
        service_of(log).frames.peek(probe.subscription.cursor.location)[0],
        rest._predicate,
        rest._view,
        Position(1, 10),
    )
    assert other.take() is None


@pytest.mark.parametrize("error", [OSError(5, "gone"), HistoryPruned(Position(9))])
def test_what_cannot_be_read_ahead_is_told_when_it_is_the_next(log, monkeypatch, error):
    """E11, E37: what lies before it is given."""
    read = Reader.read

    def failing(reader, location):
        frame = read(reader, location)
        if frame is not None and frame.header.version == 3:
            raise error
        return frame

    monkeypatch.setattr(Reader, "read", failing)
    probe = reading(log)
    step(probe, 20)
    assert probe.error is None
    probe.request(1)
    probe.wait_for_end()
    assert re.search("gone|no longer kept", str(probe.error))
    assert probe.positions[-1] == Position(2, 9)
