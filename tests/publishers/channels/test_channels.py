"""Channels: messages that reach whoever listens, by name or by pattern, and are not stored."""

import asyncio
import gc
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import Overflow
from penstock_cdc.errors import InvalidOption
from publishers.channels import Channels, ChannelsClosed, Message
from tests.harness.scale import scaled
from tests.publishers.support import Probe, in_threads, wait_until

EVERYTHING = flow.UNBOUNDED


class Hearer(Probe):
    """Keeps messages, and what it was told of losses."""

    def __init__(self, first=EVERYTHING, each=0):
        super().__init__(first, each)
        self.messages = []
        self.losses = []

    def take(self, message):
        self.messages.append(message)
        self.excess += len(self.messages) > self.requested

    def on_lagged(self, missed):
        with self._signal():
            self.losses.append(missed)

    @property
    def contents(self):
        return [message.content for message in self.messages]

    @property
    def received(self):
        """What it got, and how much it was told to have lost."""
        return len(self.messages) + sum(message.missed for message in self.messages)

    def state(self):
        return f"{len(self.messages)} messages, losses {self.losses}, error {self.error!r}"


class BatchHearer(Hearer):
    def on_next_batch(self, messages, /):
        with self._signal():
            for message in messages:
                self.take(message)


def hear(channels, *names, hearer=None, executor=flow.INLINE, **wishes):
    hearer = hearer or Hearer()
    channels.messages(*names, **wishes).subscribe(hearer, executor=executor)
    return hearer


# Who gets what.


def test_exact_and_pattern_subscribers_get_what_they_asked_for():
    """F71: publish answers how many took it; who listens to nothing of it gets nothing."""
    with Channels() as channels:
        exact = hear(channels, "news.sport")
        by_pattern = hear(channels, patterns=["news.*"])
        mixed = hear(channels, "weather", "tides", patterns="news.spor?")
        everything = hear(channels, patterns="*")
        assert channels.publish("news.sport", {"score": 3}) == 4
        assert channels.publish("news.arts", 2) == 2
        assert channels.publish("tides", 3) == 2
        assert channels.publish("new", 4) == 1
        assert exact.messages == [Message("news.sport", {"score": 3})]
        assert [message.channel for message in by_pattern.messages] == ["news.sport", "news.arts"]
        assert [message.channel for message in mixed.messages] == ["news.sport", "tides"]
        assert [message.content for message in everything.messages] == [{"score": 3}, 2, 3, 4]
        assert exact.messages[0] is everything.messages[0], "it is one object for all"
    assert all(one.completed and one.clean for one in (exact, by_pattern, mixed, everything))


def test_a_message_that_is_wanted_for_several_reasons_comes_once():
    """F71."""
    with Channels() as channels:
        hearer = hear(channels, "a.b", patterns=["a.*", "*.b", "*", "?.?"])
        assert channels.publish("a.b", 1) == 1
        assert hearer.contents == [1]


def test_nobody_listens_and_nothing_is_kept():
    """F71: a message is for those who listen when it is published; who comes later does not get it."""
    with Channels() as channels:
        assert channels.publish("news", 1) == 0
        late = hear(channels, "news")
        assert channels.publish("news", 2) == 1
        assert late.contents == [2]
        told = channels.statistics()
        assert (told.published, told.unheard, told.passed_on) == (2, 1, 1)


@given(
    st.lists(st.text("ab*?", min_size=1, max_size=5), min_size=1, max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=8),
    st.data(),
)
def test_patterns_find_what_a_plain_comparison_finds(patterns, names, data):
    """F71, F56: whoever comes and goes in between."""
    with Channels() as channels:
        here = {}
        for name in names * 2:
            for number, pattern in enumerate(patterns):
                if data.draw(st.booleans()):
                    if number in here:
                        here.pop(number).subscription.cancel()
                    else:
                        here[number] = hear(channels, patterns=[pattern])
            counts = {number: len(hearer.messages) for number, hearer in here.items()}
            wanted = {number for number in here if fnmatchcase(name, patterns[number])}
            assert channels.publish(name, 1) == len(wanted)
            got = {number for number, hearer in here.items() if len(hearer.messages) > counts[number]}
            assert got == wanted


def test_patterns_are_of_bytes_and_know_two_signs_only():
    """F71: ``?`` is one byte, and brackets are nothing special."""
    with Channels() as channels:
        one, two, bracket = (hear(channels, patterns=[each]) for each in ("caf?", "caf??", "[ab]*"))
        channels.publish("café", 1)
        channels.publish("a", 2)
        channels.publish("[ab]c", 3)
        assert (one.contents, two.contents, bracket.contents) == ([], [1], [3])


@pytest.mark.parametrize("listeners", [10, 1000])
def test_publishing_follows_the_patterns_that_a_name_leads_to(listeners):
    """F71: counted: with a thousand patterns as many are asked as with ten; and a name that is known asks none."""
    with Channels() as channels:
        for number in range(listeners):
            hear(channels, patterns=[f"area{number}.*.end"])
        for _ in range(5):
            assert channels.publish("area7.x.end", 1) == 1
        assert channels.publish("area7.x.other", 1) == 0
        assert channels.statistics().evaluations == 2


# Those who go.


@pytest.mark.parametrize("end", ["cancel", "raise", "overflow", "refuse", "close", "loop"])
def test_the_dead_are_removed(end, dropped):
    """F71, F72: whatever ended them, nothing refers to them, and the next message is not for them."""
    channels = Channels(capacity=1)
    survivor = hear(channels, "a")
    loop = asyncio.new_event_loop()
    hearer = Hearer(first=0 if end == "overflow" else 5)
    hear(channels, "a", patterns=["b*"], hearer=hearer, executor=loop if end == "loop" else flow.INLINE)
    if end == "cancel":
        hearer.subscription.cancel()
    elif end == "raise":
        hearer.take = None  # not callable
    elif end == "refuse":
        hearer.request(0)
    elif end == "close":
        channels.close()
    if end == "loop":
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    if end != "close":
        for number in range(3):
            channels.publish("a", number)
        assert len(channels.statistics().listeners) == 1
        assert channels.publish("b", 1) == 0
        assert survivor.contents == [0, 1, 2]
    else:
        assert channels.statistics().listeners == ()
    reference = weakref.ref(hearer)
    del hearer
    gc.collect()
    assert reference() is None
    assert len(dropped) == (end == "raise")


def test_many_come_and_go_and_leave_nothing():
    """F71, F72: no growth, in the index neither."""
    with Channels() as channels:
        keeper = hear(channels, patterns=["*"])

        def churn(count):
            for number in range(count):
                hearer = hear(channels, f"a{number}", patterns=[f"b{number}*", "c*"])
                channels.publish(f"a{number}", number)
                hearer.subscription.cancel()
            keeper.messages.clear()
            gc.collect()
            return len(gc.get_objects())

        churn(200)
        before = churn(scaled(500))
        assert churn(scaled(500)) < before + 300
        assert len(channels._lookup._index) == 1


def test_what_is_remembered_of_names_is_bounded():
    """Invariant 12: names that never come again are forgotten."""
    with Channels() as channels:
        for _ in range(31):  # each name is remembered with all that hear it
            hear(channels, patterns=["*"])
        weights = []
        for number in range(3 * 65_536 // 32):
            channels._lookup.find(str(number))
            weights.append(channels._lookup._weight)
        assert 65_536 <= max(weights) <= 65_536 + 32
        assert len(channels._lookup._known) <= 65_536 // 32 + 1


def test_closing_gives_what_waits_and_then_the_end():
    """F71, invariant 11: late subscribers are completed, and publishing is refused."""
    channels = Channels()
    waiting, idle = hear(channels, "a", hearer=Hearer(first=1)), hear(channels, "b", hearer=Hearer(first=0))
    channels.publish("a", 1)
    channels.publish("a", 2)
    channels.close()
    channels.close()
    assert channels.closed
    assert idle.completed
    assert not waiting.terminals
    waiting.request(1)
    assert waiting.contents == [1, 2]
    assert waiting.completed
    late = Hearer()
    channels.messages("a").subscribe(late)
    assert late.completed
    with pytest.raises(ChannelsClosed, match="closed"):
        channels.publish("a", 3)
    assert channels.statistics().closed


def test_the_pool_goes_with_the_last_whom_it_serves():
    """F71: who still has something to take gets it on the pool after the close."""
    channels = Channels()
    hearer = Hearer(first=0)
    channels.messages("a").subscribe(hearer)
    wait_until(lambda: hearer.subscription)
    pool = channels._pool
    channels.publish("a", 1)
    channels.close()
    assert not pool._shutdown
    hearer.request(1)
    hearer.wait_for_end()
    assert hearer.contents == [1]
    wait_until(lambda: pool._shutdown)


# Where signals run.


async def test_an_async_iterator_listens_on_its_loop():
    """F71, F128: and is told of what it lost."""
    with Channels(capacity=4, overflow=Overflow.DROP_OLDEST) as channels:
        async with flow.aiter(channels.messages("a"), prefetch=2) as messages:
            await asyncio.sleep(0)
            for number in range(3):
                await asyncio.to_thread(channels.publish, "a", number)
            found = [(await anext(messages)).content for _ in range(3)]
        assert found == [0, 1, 2]
        async with flow.aiter(channels.messages("a"), prefetch=1) as messages:
            await asyncio.sleep(0)
            for number in range(10):
                channels.publish("a", number)
            with pytest.raises(flow.Lagged):
                [message async for message in messages]


def test_loops_over_messages_end_their_subscriptions():
    """F71, F128."""
    with Channels() as channels:
        listening = iter(channels.messages("a"))
        channels.publish("a", 1)
        assert next(listening).content == 1
        del listening
        wait_until(lambda: not channels.statistics().listeners)

        async def follow():
            async for message in channels.messages("a"):
                return message.content
            return None

        async def main():
            following = asyncio.create_task(follow())
            await asyncio.sleep(0)
            assert channels.publish("a", 2) == 1
            assert await following == 2

        asyncio.run(main())
        wait_until(lambda: not channels.statistics().listeners)


def test_a_stuck_subscriber_holds_up_nobody():
    """F71, F66: publish does not wait, and the others have everything meanwhile."""
    with Channels(capacity=10_000) as channels:
        go = threading.Event()

        class Stuck(Hearer):
            def take(self, message):
                super().take(message)
                assert go.wait(60)

        stuck, others = Stuck(), [Hearer() for _ in range(5)]
        for hearer in (stuck, *others):
            channels.messages("a").subscribe(hearer)
        for number in range(200):
            channels.publish("a", number)
        for hearer in others:
            wait_until(lambda hearer=hearer: len(hearer.messages) == 200, hearer.state)
        assert len(stuck.messages) <= 1
        go.set()
        wait_until(lambda: len(stuck.messages) == 200, stuck.state)
        assert stuck.clean


def test_publishing_inside_a_signal_reaches_everybody_and_does_not_deepen_the_stack():
    """F71, E27."""
    with Channels() as channels:
        other = hear(channels, patterns=["*"])

        class Chain(Hearer):
            def take(self, message):
                super().take(message)
                if message.content < 2000:
                    channels.publish("a", message.content + 1)

        chain = hear(channels, "a", hearer=Chain())
        channels.publish("a", 0)
        assert chain.contents == list(range(2001))
        assert sorted(other.contents) == list(range(2001))
        assert chain.deepest == 1


def test_all_subscribers_of_a_channel_see_one_order():
    """F71: many threads publish; each subscriber has everything, in the same order, and each thread's own in its order."""
    with Channels(capacity=100_000) as channels, ThreadPoolExecutor(2) as pool:
        hearers = [Hearer(), BatchHearer(), Hearer()]
        for hearer, executor in zip(hearers, (flow.INLINE, pool, None), strict=True):
            channels.messages("b", patterns=["a*"]).subscribe(hearer, executor=executor)
            wait_until(lambda hearer=hearer: hearer.subscription)
        count = scaled(500)

        def publish(thread):
            draw = random.Random(thread)
            for number in range(count):
                channels.publish(draw.choice(["a1", "a2", "b"]), (thread, number))

        in_threads(*[lambda thread=thread: publish(thread) for thread in range(3)])
        for hearer in hearers:
            wait_until(lambda hearer=hearer: len(hearer.messages) == 3 * count, hearer.state)
            assert hearer.contents == hearers[0].contents
            assert hearer.clean
        for thread in range(3):
            own = [number for by, number in hearers[0].contents if by == thread]
            assert own == list(range(count))


def test_whoever_is_interrupted_leaves_nobody_asleep():
    """F71: a KeyboardInterrupt in a subscriber passes to the publishing thread, and the others have the message."""
    with Channels() as channels:
        first = hear(channels, "a")

        class Interrupting(Hearer):
            def take(self, message):
                super().take(message)
                if message.content == 1:
                    raise KeyboardInterrupt

        middle, last = hear(channels, "a", hearer=Interrupting()), hear(channels, "a")
        with pytest.raises(KeyboardInterrupt):
            channels.publish("a", 1)
        assert first.contents == last.contents == [1]
        assert channels.publish("a", 2) == 2
        assert middle.contents == [1]


# Mistakes.


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda channels: channels.messages(), "channels"),
        (lambda channels: channels.messages(""), "channels"),
        (lambda channels: channels.messages(b"a"), "channels"),
        (lambda channels: channels.messages("\ud800"), "channels"),
        (lambda channels: channels.messages(patterns=["a", 1]), "patterns"),
        (lambda channels: channels.messages(patterns="*" * 1025), "patterns"),
        (lambda channels: channels.messages("a", capacity=0), "capacity"),
        (lambda channels: channels.messages("a", overflow=Overflow.BUFFER), "overflow"),
        (lambda channels: channels.messages("a", overflow="DROP_OLDEST"), "overflow"),
        (lambda channels: channels.publish(None, 1), "channel"),
        (lambda channels: channels.publish("", 1), "channel"),
        (lambda channels: Channels(capacity=True), "capacity"),
        (lambda channels: Channels(overflow=Overflow.BUFFER), "overflow"),
        (lambda channels: Channels(dispatch_threads=0), "dispatch_threads"),
    ],
)
def test_a_mistake_is_named(make, parameter):
    """F71: every buffer has a bound, every name is text."""
    with Channels() as channels, pytest.raises(InvalidOption) as raised:
        make(channels)
    assert raised.value.parameter == parameter


@pytest.mark.parametrize("nobody", [None, object()])
def test_who_is_no_subscriber_is_refused(nobody):
    with Channels() as channels:
        with pytest.raises(TypeError):
            channels.messages("a").subscribe(nobody)
        assert channels.statistics().listeners == ()


def test_any_content_is_passed_on_as_it_is():
    """F71: None included, which would be no element by itself."""
    with Channels() as channels:
        hearer = hear(channels, "a")
        for content in (None, 0, b"", [], Exception()):
            channels.publish("a", content)
            assert hearer.messages[-1].content is content
