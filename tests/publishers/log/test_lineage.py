"""Positions as clients keep them, judged by the history of a log."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cdc.errors import HistoryPruned, PositionAhead, PositionForeign, PositionForked
from penstock_cdc.types import PositionToken
from publishers import Position
from publishers.log.lineage import Lineage
from publishers.wal import Epoch, Follower

OLDEST, HEAD = Position(5, 0), Position(31, 0)
EPOCHS = Epoch(1, 1, 11), Epoch(3, 10, 33), Epoch(4, 20, 44)
MIXED = Epoch(1, 1), Epoch(3, 10), Epoch(5, 20, 55)


def files(*epochs):
    return SimpleNamespace(log_id=uuid4(), epochs=epochs)


class Following(Follower):
    """A follower as far as it is asked here; ``told`` is what its owner tells by now."""

    def __init__(self, opening, epochs, told=None):
        self.log_id = uuid4()
        self.opening = opening
        self._known = epochs
        self._told_now = told or (opening, epochs)
        self.asked = 0

    @property
    def epochs(self):
        return self._known

    def epochs_anew(self):
        self.asked += 1
        return self._told_now

    def epochs_then(self, version):
        return self._known


def forked(log, epoch, position, random, **more):
    with pytest.raises(PositionForked) as caught:
        Lineage(log).judge(PositionToken(log.log_id, epoch, position, random), OLDEST, HEAD, **more)
    assert caught.value.epoch == epoch
    return caught.value.end


def good(log, epoch, position, random=0):
    found = Lineage(log).judge(PositionToken(log.log_id, epoch, position, random), OLDEST, HEAD)
    return found == position


def test_a_token_carries_the_epoch_that_wrote_what_stands_before_it():
    """F144: the first position of an epoch names the one before, which every copy of the log knows."""
    lineage = Lineage(files(*EPOCHS))
    places = [
        Position(1),
        Position(9),
        Position(10),
        Position(10, 1),
        Position(20),
        Position(21),
        Position(99),
    ]
    told = [lineage.token(place) for place in places]
    assert [(token.epoch, token.random) for token in told] == [
        (1, 11), (1, 11), (1, 11), (3, 33), (3, 33), (4, 44), (4, 44),
    ]  # fmt: skip


def test_the_id_of_a_change_names_the_epoch_that_wrote_it():
    """F22, F144: two histories of one log give the same versions to different changes."""
    log = files(*MIXED)
    lineage = Lineage(log)
    name = log.log_id.hex
    assert lineage.change_id(Position(19, 2)) == f"{name}:19:2"  # as it was in format 1
    assert lineage.change_id(Position(20, 0)) == f"{name}:5.NwAAAAAAAAA:20:0"


@given(st.integers(5, 30), st.integers(0, 9), st.sampled_from([EPOCHS, MIXED]))
def test_a_token_of_the_log_itself_is_good(version, index, epochs):
    lineage = Lineage(files(*epochs))
    position = Position(version, index)
    assert lineage.judge(lineage.token(position), OLDEST, HEAD) == position


def test_an_older_epoch_is_good_up_to_where_the_next_one_began():
    log = files(*EPOCHS)
    assert good(log, 1, Position(10, 0), 11)
    assert forked(log, 1, Position(10, 1), 11) == Position(10, 0)
    assert forked(log, 3, Position(20, 1), 33) == Position(20, 0)


@pytest.mark.parametrize(
    ("epoch", "random"), [(1, 12), (1, 0), (2, 11), (4, 33), (4, 0), (5, 44), (5, 0), (9, 9)]
)
def test_an_epoch_that_the_log_never_had_is_another_history(epoch, random):
    """F144: by its number or by its random bits; nobody knows where the two part, so no end is told."""
    log = files(*EPOCHS)
    for position in (Position(5, 0), Position(7, 0), HEAD, Position(10**6, 0)):
        assert forked(log, epoch, position, random) is None
    # Before what is kept there is nothing to be told but that.
    with pytest.raises(HistoryPruned):
        Lineage(log).judge(PositionToken(log.log_id, epoch, Position(4, 9), random), OLDEST, HEAD)
    lost = PositionToken(log.log_id, epoch, Position(4, 9), random)
    assert Lineage(log).judge(lost, OLDEST, HEAD, pruned=True) == Position(4, 9)
    assert forked(log, epoch, Position(5, 0), random, pruned=True) is None


def test_before_the_first_change_all_histories_are_one():
    log = files(Epoch(7, 1, 77))
    for epoch, random in ((7, 77), (7, 78), (3, 0), (9, 9)):
        token = PositionToken(log.log_id, epoch, Position(1, 0), random)
        assert Lineage(log).judge(token, Position(1), Position(1)) == Position(1, 0)
        assert Lineage(log).judge(token, Position(1), HEAD) == Position(1, 0)
        with pytest.raises(HistoryPruned):
            Lineage(log).judge(token, Position(2), HEAD)


def test_tokens_without_random_bits_are_good_for_epochs_without_them_only():
    """F144: also for epochs of format 1 that wrote nothing, which the log has forgotten."""
    log = files(*MIXED)
    for epoch, end in ((1, 10), (2, 10), (3, 20), (4, 20)):
        assert good(log, epoch, Position(end, 0))
        assert forked(log, epoch, Position(end, 1), 0) == Position(end, 0)
        assert forked(log, epoch, Position(6, 0), 7) is None
    for epoch in (5, 6):
        assert forked(log, epoch, Position(6, 0), 0) is None
    late = files(*MIXED[1:])
    assert forked(late, 2, Position(12, 0), 0) is None  # where it ended is not known any more
    assert good(log, 5, Position(31, 0), 55)


def test_another_log_the_future_and_what_was_pruned_are_told_apart():
    log = files(Epoch(1, 1, 11))
    lineage = Lineage(log)
    with pytest.raises(PositionForeign):
        lineage.judge(PositionToken(uuid4(), 1, Position(6, 0), 11), OLDEST, HEAD)
    with pytest.raises(PositionAhead) as ahead:
        lineage.judge(PositionToken(log.log_id, 1, Position(31, 1), 11), OLDEST, HEAD)
    assert ahead.value.head == HEAD
    with pytest.raises(HistoryPruned) as pruned:
        lineage.judge(PositionToken(log.log_id, 1, Position(4, 9), 11), OLDEST, HEAD)
    assert pruned.value.oldest == OLDEST


def ahead(log, epoch, position, random):
    with pytest.raises(PositionAhead) as caught:
        Lineage(log).judge(PositionToken(log.log_id, epoch, position, random), OLDEST, HEAD)
    return caught.value.head == HEAD


def test_a_follower_asks_once_more_before_it_refuses_an_epoch():
    """F144: what it has not heard of yet is ahead, and may be tried again; what its owner does not know is forked."""
    later = (*EPOCHS, Epoch(6, 25, 66))
    log = Following((4, 44), EPOCHS, ((6, 66), later))
    assert good(log, 6, Position(31, 0), 66)
    assert good(log, 4, Position(24, 0), 44)
    assert log.asked == 1  # what it knows it need not ask for
    assert forked(log, 5, Position(6, 0), 55) is None
    assert forked(log, 6, Position(6, 0), 67) is None
    assert log.asked == 3


def test_a_follower_says_ahead_only_if_its_evidence_is_older_than_the_token():
    """F144."""
    log = Following((4, 44), EPOCHS)
    assert ahead(log, 5, Position(6, 0), 55)
    assert forked(log, 4, Position(6, 0), 45) is None
    # The frame that tells of the writer's epoch may lie behind what is withheld.
    hidden = Following((6, 66), EPOCHS)
    assert ahead(hidden, 6, Position(35, 0), 66)
    assert forked(hidden, 5, Position(35, 0), 55) is None
    assert ahead(hidden, 7, Position(6, 0), 77)
    # No epoch without random bits follows one that has them.
    assert forked(hidden, 7, Position(6, 0), 0) is None


def test_a_follower_of_a_log_of_format_1_judges_by_numbers_as_long_as_its_owner_does():
    """F144."""
    old = Following((4, 0), MIXED[:2])
    assert good(old, 4, Position(31, 0))
    assert good(old, 2, Position(10, 0))
    assert ahead(old, 5, Position(6, 0), 0)
    assert ahead(old, 5, Position(6, 0), 55)
    # It was opened by a version that draws them, and has shown nothing of its own yet.
    opened = Following((4, 44), MIXED[:2])
    assert good(opened, 3, Position(31, 0))
    assert forked(opened, 4, Position(6, 0), 0) is None
