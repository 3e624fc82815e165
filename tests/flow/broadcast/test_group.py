import contextvars
import gc
import threading
import weakref
from unittest import mock

import pytest

import flow
from flow.broadcast import Broadcast, BroadcastClosed, Lag, OfferResult, replay
from flow.broadcast.group import SyncedGroup
from tests.flow.broadcast.test_broadcast import ALL, Hands, Listener, listen, offer
from tests.flow.probes import BatchProbe, ManualExecutor, wait_until


def hub_of(broadcast):
    """What serves the subscribers: no face tells which of them are served together."""
    return broadcast._hub


def together(broadcast, count, on_item=None, **options):
    """Subscribers that are served together from the element 0 on, which they have got."""
    listeners = [listen(broadcast, ALL, on_item=on_item, **options) for _ in range(count)]
    broadcast.submit(0)
    assert len(hub_of(broadcast).group.members) == count
    return listeners


class Batched(BatchProbe):
    """Takes batches, and notes losses."""

    def on_next_batch(self, items, /):
        super().on_next_batch(items)
        for item in items:
            if self.on_item is not None:
                self.on_item(item)

    def on_lagged(self, missed, /): ...


# Who is served together.


def test_those_who_have_kept_up_are_served_together_and_in_order():
    broadcast = Broadcast(4)
    listeners = together(broadcast, 3)
    assert [broadcast.submit(item) for item in range(1, 9)] == [0] * 8
    assert all(listener.items == list(range(9)) for listener in listeners)
    numbers = broadcast.statistics()
    assert numbers.buffered == 0
    assert [each.delivered for each in numbers.subscribers] == [9] * 3


def test_who_lacks_demand_stays_behind_and_comes_back():
    broadcast = Broadcast(64)
    [steady] = together(broadcast, 1)
    slow = listen(broadcast, 3)
    for item in range(1, 10):
        broadcast.submit(item)
    assert slow.items == [1, 2, 3]
    assert [each.demand for each in broadcast.statistics().subscribers] == [ALL, 0]
    slow.request(ALL)
    for item in range(10, 50):
        broadcast.submit(item)
    assert steady.items == list(range(50))
    assert slow.items == list(range(1, 50))
    assert len(hub_of(broadcast).group.members) == 2


def test_a_request_inside_on_next_keeps_a_subscriber_in_the_group():
    broadcast = Broadcast(4)
    listeners = [listen(broadcast, 1, 1) for _ in range(3)]
    for item in range(100):
        broadcast.submit(item)
    assert all(listener.items == list(range(100)) for listener in listeners)
    assert [each.demand for each in broadcast.statistics().subscribers] == [1] * 3


def test_an_executor_of_its_own_keeps_a_subscriber_out_of_the_group():
    broadcast, executor = Broadcast(8), ManualExecutor()
    listeners = together(broadcast, 2)
    elsewhere = listen(broadcast, ALL, executor=executor)
    for item in range(1, 4):
        broadcast.submit(item)
        executor.run_all()
    broadcast.submit(4)
    assert len(hub_of(broadcast).group.members) == 2
    assert elsewhere.items == [1, 2, 3]
    assert all(listener.items == list(range(5)) for listener in listeners)


def test_an_illegal_request_in_the_group_ends_that_subscription_at_once():
    broadcast = Broadcast(4)
    first, second = together(broadcast, 2)
    first.request(0)
    assert isinstance(first.error, flow.IllegalRequestError)
    broadcast.submit(1)
    assert first.items == [0]
    assert second.items == [0, 1]


def test_who_asks_for_the_flag_of_a_member_has_it_from_the_group():
    broadcast = Broadcast(4)
    listeners = together(broadcast, 2)
    drain = next(iter(hub_of(broadcast).subscriptions))
    drain.release_hold()  # it is not held, but lent
    assert len(hub_of(broadcast).group.members) == 2
    assert drain.try_hold()
    assert len(hub_of(broadcast).group.members) == 1
    broadcast.submit(1)
    assert [listener.items for listener in listeners] == [[0], [0, 1]]
    drain.release_hold()
    assert [listener.items for listener in listeners] == [[0, 1]] * 2


# What happens during a round.


def test_who_is_cancelled_by_a_neighbour_gets_nothing_more():
    broadcast = Broadcast(4)
    listeners = []
    listeners += together(broadcast, 3, lambda item: item == 1 and listeners[1].cancel())
    broadcast.submit(1)
    assert [listener.items for listener in listeners] == [[0, 1], [0], [0, 1]]
    assert len(broadcast.statistics().subscribers) == 2


def test_who_cancels_in_the_middle_of_many_elements_gets_no_more_of_them():
    broadcast = Broadcast(8)
    listeners = []
    listeners += together(broadcast, 2, lambda item: item == 2 and listeners[0].cancel())
    broadcast.submit_many(range(1, 5))
    assert listeners[0].items == [0, 1, 2]
    assert listeners[1].items == [0, 1, 2, 3, 4]


def test_a_failure_in_a_round_overtakes_what_was_taken():
    broadcast = Broadcast(8)
    failure = ValueError("no")
    listeners = together(broadcast, 3, lambda item: item == 1 and broadcast.fail(failure))
    broadcast.submit_many([1, 2])
    assert [listener.items for listener in listeners] == [[0, 1], [0], [0]]
    assert [listener.error for listener in listeners] == [failure] * 3


def test_closing_in_a_round_lets_everybody_have_what_was_taken():
    broadcast = Broadcast(8)
    listeners = together(broadcast, 3, lambda item: item == 1 and broadcast.close())
    broadcast.submit_many([1, 2])
    assert [listener.items for listener in listeners] == [[0, 1, 2]] * 3
    assert all(listener.completed for listener in listeners)
    with pytest.raises(BroadcastClosed):
        broadcast.submit(3)


def test_a_subscriber_that_raises_in_the_group_harms_nobody_else(dropped):
    broadcast = Broadcast(4)

    def fail(item):
        if item == 1:
            raise ValueError("mine")

    healthy, failing = listen(broadcast, ALL), listen(broadcast, ALL, on_item=fail)
    for item in range(3):
        broadcast.submit(item)
    assert failing.items == [0, 1]
    assert healthy.items == [0, 1, 2]
    assert [str(error) for error in dropped.errors] == ["mine"]


def test_an_interrupt_in_the_group_passes_when_everybody_was_served():
    broadcast = Broadcast(4)

    def interrupt(item):
        if item == 1:
            raise KeyboardInterrupt

    listen(broadcast, ALL, on_item=interrupt)
    second = listen(broadcast, ALL)
    broadcast.submit(0)
    with pytest.raises(KeyboardInterrupt):
        broadcast.submit(1)
    broadcast.submit(2)
    assert second.items == [0, 1, 2]
    assert len(broadcast.statistics().subscribers) == 1


@pytest.mark.parametrize("demand", [(ALL, 0), (1, 1)])
def test_submitting_inside_on_next_reaches_all_in_the_same_order(demand):
    broadcast = Broadcast(4)
    listeners = [listen(broadcast, *demand), listen(broadcast, *demand)]
    talker = listen(broadcast, *demand, on_item=lambda item: item < 500 and broadcast.offer(item + 1))
    broadcast.offer(1000)
    assert len(hub_of(broadcast).group.members) == 3
    broadcast.offer(0)
    assert all(listener.items == [1000, *range(501)] for listener in (*listeners, talker))
    assert talker.deepest == 1
    assert broadcast.statistics().buffered == 0


def test_subscribing_inside_on_next_begins_with_what_is_written_next():
    broadcast, late = Broadcast(4), []
    listeners = together(broadcast, 2, lambda item: item == 1 and late.append(listen(broadcast, ALL)))
    for item in range(1, 4):
        broadcast.submit(item)
    assert all(listener.items == [0, 1, 2, 3] for listener in listeners)
    assert [listener.items for listener in late] == [[2, 3]] * 2


@pytest.mark.parametrize("lag", [Lag.DROP_OLDEST, Lag.LATEST, Lag.ERROR])
def test_a_slow_round_does_not_hold_up_the_writer_of_a_lossy_group(lag):
    broadcast, told, go = Broadcast(2, lag=lag), threading.Event(), threading.Event()
    listeners = together(broadcast, 2, lambda item: item == 1 and (told.set(), go.wait(60)))
    thread = threading.Thread(target=broadcast.submit, args=(1,))
    thread.start()
    assert told.wait(60)
    assert set(offer(broadcast, range(2, 7))) == {OfferResult.OK}
    go.set()
    thread.join(60)
    for listener in listeners:
        if lag is Lag.ERROR:
            assert listener.items == [0, 1]
            assert isinstance(listener.error, flow.Lagged)
        else:
            assert listener.story == [0, 1, *(["-3", 5, 6] if lag is Lag.DROP_OLDEST else ["-4", 6])]
    broadcast.close()


def test_a_group_that_gates_for_too_long_is_overtaken():
    clock, told, go = Hands(), threading.Event(), threading.Event()
    broadcast = Broadcast(2, stall_timeout=5, clock=clock)
    listeners = together(broadcast, 2, lambda item: item == 1 and (told.set(), go.wait(60)))
    thread = threading.Thread(target=broadcast.submit, args=(1,))
    thread.start()
    assert told.wait(60)
    assert offer(broadcast, (2, 3, 4)) == [OfferResult.OK, OfferResult.OK, OfferResult.FULL]
    clock.time = 5
    assert broadcast.offer(4) is OfferResult.OK
    go.set()
    thread.join(60)
    assert [listener.items for listener in listeners] == [[0, 1]] * 2
    assert all(isinstance(listener.error, flow.Lagged) for listener in listeners)
    assert broadcast.statistics().stalled == 2


def test_a_waiting_submit_goes_on_when_the_group_does():
    broadcast, told, go = Broadcast(2), threading.Event(), threading.Event()
    listeners = together(broadcast, 2, lambda item: item == 1 and (told.set(), go.wait(60)))
    first = threading.Thread(target=broadcast.submit, args=(1,))
    first.start()
    assert told.wait(60)
    assert offer(broadcast, (2, 3)) == [OfferResult.OK] * 2
    second = threading.Thread(target=broadcast.submit, args=(4, 30))
    second.start()
    wait_until(lambda: broadcast._room._waiters)
    go.set()
    second.join(60)
    assert not second.is_alive()
    first.join(60)
    assert [listener.items for listener in listeners] == [[0, 1, 2, 3, 4]] * 2


def test_a_member_of_the_group_was_in_the_way_until_the_next_round():
    clock, told, go = Hands(), threading.Event(), threading.Event()
    broadcast = Broadcast(1, clock=clock)
    together(broadcast, 1, lambda item: item == 1 and (told.set(), go.wait(60)))
    thread = threading.Thread(target=broadcast.submit, args=(1,))
    thread.start()
    assert told.wait(60)
    assert offer(broadcast, (2, 3)) == [OfferResult.OK, OfferResult.FULL]
    clock.time = 3
    go.set()
    thread.join(60)
    clock.time = 5
    assert [each.blocked_seconds for each in broadcast.statistics().subscribers] == [3]


def test_an_interrupt_of_a_member_that_leaves_costs_the_others_nothing():
    broadcast = Broadcast(4)

    def interrupt(item):
        if item == 2:
            raise KeyboardInterrupt

    steady = listen(broadcast, ALL, on_item=lambda item: item == 0 and offer(broadcast, (1, 2)))
    listen(broadcast, ALL, on_item=interrupt, lag=Lag.LATEST)
    broadcast.submit(-1)
    assert len(hub_of(broadcast).group.members) == 2
    with pytest.raises(KeyboardInterrupt):
        broadcast.submit(0)
    broadcast.submit(3)
    assert steady.items == [-1, 0, 1, 2, 3]
    assert len(hub_of(broadcast).group.members) == 1


def test_an_interrupt_of_the_thread_that_serves_breaks_up_the_group_and_it_forms_again():
    broadcast = Broadcast(4)
    listeners = together(broadcast, 2)
    with (
        mock.patch.object(SyncedGroup, "give", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        broadcast.submit(1)
    assert hub_of(broadcast).group.members == ()
    for item in range(2, 30):
        broadcast.submit(item)
    assert all(listener.items == [0, *range(2, 30)] for listener in listeners)
    assert len(hub_of(broadcast).group.members) == 2


# Contexts and references.


def test_each_in_the_group_sees_its_own_context():
    variable = contextvars.ContextVar("variable")
    broadcast, seen = Broadcast(4), []
    for name in ("one", "two", "two"):
        contextvars.copy_context().run(
            lambda name=name: (
                variable.set(name),
                listen(broadcast, ALL, on_item=lambda item: seen.append(variable.get())),
            )
        )
    for item in range(4):
        broadcast.submit(item)
    assert len(hub_of(broadcast).group.members) == 3
    assert seen == ["one", "two", "two"] * 4


def test_who_sets_a_variable_in_the_group_is_kept_apart_from_then_on():
    variable = contextvars.ContextVar("variable", default=None)
    broadcast, seen = Broadcast(4), []

    def change(item):
        if item == 1:
            variable.set("changed")

    listeners = [listen(broadcast, ALL, on_item=lambda item: seen.append((item, variable.get())))]
    listeners.append(listen(broadcast, ALL, on_item=change))
    for item in range(4):
        broadcast.submit(item)
    assert seen == [(item, None) for item in range(4)]
    assert all(listener.items == [0, 1, 2, 3] for listener in listeners)


@pytest.mark.parametrize("items", [[1], [1, 2]])
@pytest.mark.parametrize("kind", [Listener, Batched])
def test_rule_313_the_traceback_of_a_kept_error_keeps_no_member(dropped, items, kind):
    broadcast = Broadcast(4)

    def fail(item):
        if item == items[0]:
            raise ValueError

    def begin():
        probes = [kind(ALL) for _ in range(3)]
        probes[1].on_item = fail
        for probe in probes:
            broadcast.subscribe(probe)
        broadcast.submit(0)
        return probes, [weakref.ref(probe) for probe in probes]

    # Delivered from a frame that does not know the subscribers: a traceback keeps the callers too.
    probes, references = begin()
    kept, probes = probes[::2], None
    broadcast.submit_many(items)
    assert [list(probe.items) for probe in kept] == [[0, *items]] * 2
    assert len(dropped.errors) == 1
    for probe in kept:
        probe.cancel()
    del kept, probe
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_who_leaves_the_group_is_forgotten():
    broadcast = Broadcast(4)
    listeners = together(broadcast, 3)
    broadcast.submit(1)
    watched = [weakref.ref(listener) for listener in listeners]
    listeners.pop(0).cancel()
    gc.collect()
    assert [each() is None for each in watched] == [True, False, False]
    broadcast.close()
    listeners.clear()
    gc.collect()
    assert [each() for each in watched] == [None] * 3


# Many elements at a time.


def test_what_is_submitted_together_arrives_together():
    broadcast, probe = Broadcast(16), Batched(ALL)
    broadcast.subscribe(probe)
    listener = listen(broadcast, ALL)
    for first in range(0, 30, 10):
        assert broadcast.submit_many(range(first, first + 10)) == 0
    assert [list(batch) for batch in probe.batches] == [list(range(at, at + 10)) for at in (0, 10, 20)]
    assert listener.items == list(range(30))


def test_more_than_the_ring_holds_is_submitted_by_parts():
    broadcast, probe = Broadcast(3), Batched(ALL)
    broadcast.subscribe(probe)
    listeners = [listen(broadcast, ALL) for _ in range(2)]
    broadcast.submit(0)
    assert broadcast.submit_many(range(1, 11)) == 0
    assert broadcast.submit_many([]) == 0
    assert all(listener.items == list(range(11)) for listener in (*listeners, probe))
    assert [len(batch) for batch in probe.batches] == [1, 3, 3, 3, 1]


def test_submitting_many_gives_up_in_time():
    broadcast = Broadcast(3)
    listener = listen(broadcast)
    with pytest.raises(TimeoutError):
        broadcast.submit_many(range(5), timeout=0.001)
    listener.request(ALL)
    assert listener.items == [0, 1, 2]
    with pytest.raises(TypeError):
        broadcast.submit_many([4, None])
    assert listener.items == [0, 1, 2]


def test_a_connectable_serves_those_together_that_have_kept_up():
    gate = flow.Broadcast(64)
    shared = replay(gate, 2, prefetch=8)
    listeners = [Listener(ALL) for _ in range(3)]
    for listener in listeners:
        shared.subscribe(listener)
    shared.connect()
    for item in range(40):
        gate.submit(item)
    late = Listener(ALL)
    shared.subscribe(late)
    gate.close()
    assert all(listener.items == list(range(40)) and listener.completed for listener in listeners)
    assert late.items == [38, 39]
