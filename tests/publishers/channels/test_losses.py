"""Subscribers of channels that ask for less than comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import Overflow
from publishers.channels import Channels, Message
from publishers.channels.listener import MessageListener
from tests.publishers.channels.test_channels import BatchHearer, Hearer, hear
from tests.publishers.support import ManualExecutor, Probe


@pytest.mark.parametrize("kind", [Hearer, BatchHearer])
def test_nothing_comes_that_was_not_requested(kind):
    """F71, F67: what waits comes when it is asked for, in order."""
    with Channels(capacity=10) as channels:
        hearer = hear(channels, "a", hearer=kind(first=2))
        for number in range(6):
            channels.publish("a", number)
        assert hearer.contents == [0, 1]
        hearer.request(3)
        assert hearer.contents == [0, 1, 2, 3, 4]
        (told,) = channels.statistics().listeners
        assert (told.waiting, told.greatest, told.demand, told.received, told.dropped) == (1, 4, 0, 6, 0)
        hearer.request(3)
        assert hearer.contents == [0, 1, 2, 3, 4, 5]
        assert hearer.clean


def test_above_its_bound_a_subscription_ends_and_the_others_go_on():
    """F71: the default loses nothing unnoticed."""
    with Channels(capacity=3) as channels:
        idle, busy = hear(channels, "a", hearer=Hearer(first=0)), hear(channels, "a")
        assert [channels.publish("a", number) for number in range(6)] == [2, 2, 2, 1, 1, 1]
        assert isinstance(idle.error, flow.Overflowed)
        assert (idle.error.missed, idle.error.capacity) == (4, 3)
        assert busy.contents == [0, 1, 2, 3, 4, 5]
        assert len(channels.statistics().listeners) == 1
        assert channels.statistics().dropped == 1
        assert idle.clean


def test_one_who_asks_between_a_loss_and_its_being_told_ends_with_the_error(monkeypatch):
    """F71: whoever publishes is held up there while a request delivers all that waits; that is not the end of it."""
    wake = MessageListener.wake
    with Channels(capacity=1) as channels:
        hearer = hear(channels, "a", hearer=Hearer(first=0))
        channels.publish("a", 0)

        def late(listener):
            hearer.request(10)
            wake(listener)

        monkeypatch.setattr(MessageListener, "wake", late)
        channels.publish("a", 1)
        assert hearer.contents == [0]
        assert isinstance(hearer.error, flow.Overflowed)
        assert hearer.clean
        assert not hearer.completed


@pytest.mark.parametrize(
    ("overflow", "kept", "losses", "took"),
    [
        (Overflow.DROP_OLDEST, [(4, 4), (5, 0), (6, 0)], [1, 1, 1, 1], [1] * 7),
        (Overflow.LATEST, [(6, 6)], [1] * 6, [1] * 7),
        (Overflow.DROP_LATEST, [(0, 0), (1, 0), (2, 0)], [1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_a_loss_is_told_at_once_and_by_the_next_message(overflow, kept, losses, took):
    """F71: also to who cannot be told at once."""
    with Channels(capacity=3, overflow=overflow) as channels:
        hearer = hear(channels, "a", hearer=Hearer(first=0))
        deaf = Probe()
        deaf.take = deaf.changes.append
        channels.messages("a").subscribe(deaf, executor=flow.INLINE)
        assert [channels.publish("a", number) // 2 for number in range(7)] == took
        assert hearer.losses == losses
        hearer.request(3)
        deaf.request(3)
        expected = [Message("a", content, missed) for content, missed in kept]
        assert hearer.messages == deaf.changes == expected
        channels.publish("a", 7)
        hearer.request(9)
        lost_behind = 4 if overflow is Overflow.DROP_LATEST else 0
        assert hearer.messages[-1] == Message("a", 7, lost_behind)
        assert hearer.received == 8
        assert hearer.clean


def test_losses_before_a_turn_are_told_together():
    """F71: one signal for all, with the number."""
    executor = ManualExecutor()
    with Channels(capacity=2, overflow=Overflow.DROP_OLDEST) as channels:
        hearer = hear(channels, "a", executor=executor)
        executor.run_all()
        for number in range(10):
            channels.publish("a", number)
        assert executor.run_all() == 1
        assert hearer.losses == [8]
        assert hearer.messages == [Message("a", 8, 8), Message("a", 9)]


def test_each_subscription_has_bounds_of_its_own():
    """F71, invariant 12: a bound, a name, a default, a number in statistics."""
    with Channels() as channels:
        hear(channels, "b", "a", patterns=["x*", "c*"], capacity=5, overflow=Overflow.DROP_OLDEST)
        hear(channels, "a")
        one, other = channels.statistics().listeners
        assert (one.channels, one.patterns) == (("a", "b"), ("c*", "x*"))
        assert (one.capacity, one.overflow) == (5, Overflow.DROP_OLDEST)
        assert (other.capacity, other.overflow) == (1024, Overflow.ERROR)
        assert one.name == "Hearer"
        assert one.id != other.id


@given(
    st.sampled_from([Overflow.DROP_OLDEST, Overflow.DROP_LATEST, Overflow.LATEST]),
    st.integers(1, 4),
    st.lists(st.sampled_from(["publish", "request", "turn"]), max_size=60),
)
def test_what_came_and_what_was_told_to_be_lost_add_up(overflow, capacity, steps):
    """F71: at any moment nothing is lost in silence, the order is kept, and no more waits than may."""
    executor = ManualExecutor()
    with Channels(capacity=capacity, overflow=overflow) as channels:
        hearer = hear(channels, "a", hearer=Hearer(first=0), executor=executor)
        executor.run_all()
        published = 0
        for step in steps:
            if step == "publish":
                channels.publish("a", published)
                published += 1
            elif step == "request":
                hearer.request(1)
            else:
                executor.run_one()
            (told,) = channels.statistics().listeners
            assert told.waiting <= (1 if overflow is Overflow.LATEST else capacity)
            assert told.received == published
            assert told.waiting + told.dropped + len(hearer.messages) == published
        hearer.request(100)
        executor.run_all()
        channels.publish("a", published)
        executor.run_all()
        place = -1
        for message in hearer.messages:  # each tells exactly what is missing before it
            place += message.missed + 1
            assert message.content == place
        assert place == published
        assert sum(hearer.losses) == channels.statistics().dropped
        assert hearer.clean
