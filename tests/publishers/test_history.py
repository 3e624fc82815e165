"""Past changes as pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import Content, Criterion, HistoryPruned, InvalidOption, LogClosed, Position
from tests.publishers.support import everything, fill, opened, order


def filled(log):
    for version in range(1, 9):
        log.commit([order(n, "order" if n % 2 else "item") for n in range(version % 4)])


@given(st.lists(st.integers(1, 7), min_size=1), st.sampled_from([None, "order", "item", "nothing"]))
def test_pages_of_any_size_lose_and_repeat_nothing(limits, kind):
    """E52: paging by position."""
    wishes = None if kind is None else [Criterion(entity_types={kind})]
    with opened() as log:
        filled(log)
        truth = [change.position for change in log.history(wishes, limit=1000).changes]
        found, since, turn = [], None, 0
        while True:
            page = log.history(wishes, since, limits[turn % len(limits)])
            assert len(page.changes) <= limits[turn % len(limits)]
            assert page.since == (log.oldest if since is None else since)  # the resolved start is echoed
            found += [change.position for change in page.changes]
            since, turn = page.next, turn + 1
            if since == log.head:
                break
            assert page.changes, "a page before the end brings something"
        assert found == truth


def test_history_carries_bodies_only_if_asked(log):
    """F8."""
    log.commit([order(7)])
    assert log.history().changes[1].body is None
    assert log.history(content=Content.BODY).changes[1].body == {"n": "7"}


def test_history_ends_at_the_watermark():
    with opened(sync="interval", sync_interval=60.0) as log:
        fill(log, 2)
        log._files.sync()  # durable, not yet published
        assert log.history().changes == ()
        assert log.history().next == Position(1, 0)
        log.commit([order(1)], durable=True)
        assert len(log.history().changes) == 6


def test_a_page_at_or_beyond_the_end_is_empty(log):
    fill(log, 1)
    for since in (Position(2, 0), Position(9, 9)):
        page = log.history(since=since)
        assert (page.changes, page.since, page.next) == ((), since, since)


def test_pruned_history_is_told(log):
    """E37."""
    with pytest.raises(HistoryPruned) as caught:
        log.history(since=Position(0, 0))
    assert caught.value.oldest == log.oldest


@pytest.mark.parametrize("limit", [0, -1, True, 1_000_001, "1", 2.0])
def test_a_limit_out_of_its_range_is_refused(log, limit):
    with pytest.raises(InvalidOption, match="limit"):
        log.history(limit=limit)


def test_a_closed_log_has_no_history():
    with opened() as log:
        fill(log, 1)
    with pytest.raises(LogClosed):
        log.history()


def test_a_page_inside_a_transaction_of_many_frames_goes_on_exactly():
    """D2: a page smaller than a transaction."""
    with opened(frame_bytes=1024) as log:
        log.commit([order(n) for n in range(300)])
        found, since = [], Position(1, 0)
        while since < log.head:
            page = log.history(since=since, limit=7)
            found += [change.position for change in page.changes]
            since = page.next
        assert found == everything(log)
        assert len(found) == 301
