"""Positions as clients keep them, judged by the history of a log."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publishers import HistoryPruned, Position, PositionAhead, PositionForeign, PositionForked, PositionToken
from publishers.lineage import Lineage

OLDEST, HEAD = Position(5, 0), Position(31, 0)


def files(*epochs):
    return SimpleNamespace(log_id=uuid4(), epoch=epochs[-1][0], epochs=epochs)


def test_a_token_carries_the_epoch_that_wrote_its_version():
    lineage = Lineage(files((1, 1), (3, 10), (4, 20)))
    assert [lineage.token(Position(version, 0)).epoch for version in (1, 9, 10, 19, 20, 99)] == [
        1,
        1,
        3,
        3,
        4,
        4,
    ]


@given(st.integers(5, 30), st.integers(0, 9))
def test_a_token_of_the_log_itself_is_good(version, index):
    lineage = Lineage(files((1, 1), (3, 10), (4, 20)))
    position = Position(version, index)
    assert lineage.judge(lineage.token(position), OLDEST, HEAD) == position


def test_an_older_epoch_is_good_up_to_where_the_next_one_began():
    log = files((1, 1), (3, 10), (4, 20))
    lineage = Lineage(log)
    assert lineage.judge(PositionToken(log.log_id, 1, Position(10, 0)), OLDEST, HEAD) == Position(10, 0)
    with pytest.raises(PositionForked) as forked:
        lineage.judge(PositionToken(log.log_id, 1, Position(10, 1)), OLDEST, HEAD)
    assert (forked.value.epoch, forked.value.end) == (1, Position(10, 0))
    # Epoch 2 wrote nothing, so it ends where epoch 3 began.
    with pytest.raises(PositionForked):
        lineage.judge(PositionToken(log.log_id, 2, Position(11, 0)), OLDEST, HEAD)


def test_another_log_the_future_and_what_was_pruned_are_told_apart():
    log = files((1, 1))
    lineage = Lineage(log)
    with pytest.raises(PositionForeign):
        lineage.judge(PositionToken(uuid4(), 1, Position(6, 0)), OLDEST, HEAD)
    with pytest.raises(PositionAhead) as ahead:
        lineage.judge(PositionToken(log.log_id, 1, Position(31, 1)), OLDEST, HEAD)
    assert ahead.value.head == HEAD
    with pytest.raises(PositionAhead):
        lineage.judge(PositionToken(log.log_id, 2, Position(6, 0)), OLDEST, HEAD)
    with pytest.raises(HistoryPruned) as pruned:
        lineage.judge(PositionToken(log.log_id, 1, Position(4, 9)), OLDEST, HEAD)
    assert pruned.value.oldest == OLDEST
