import asyncio
import gc
import itertools
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from flow import UNBOUNDED
from tests.flow.probes import ManualExecutor, Probe
from tests.harness.scale import scaled

SOURCES = {
    "list": lambda: flow.from_iterable([1, 2, 3]),
    "generator": lambda: flow.generate(lambda: iter([1, 2, 3])),
    "empty": flow.empty,
    "never": flow.never,
    "error": lambda: flow.error(OSError()),
    "not iterable": lambda: flow.generate(lambda: 3),
    "broken factory": lambda: flow.generate(lambda: 1 / 0),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())
def test_rule_109_subscribe_returns_normally_and_refuses_only_none(make):
    probe = Probe(first=1)
    make().subscribe(probe)
    assert probe.signals[0] == "subscribe"
    with pytest.raises(TypeError):
        make().subscribe(None)


@pytest.mark.parametrize("name", ["not iterable", "broken factory", "error"])
def test_rules_104_and_210_refusal_is_told_by_signals_without_a_request(name):
    probe = Probe()
    SOURCES[name]().subscribe(probe)
    assert probe.signals == ["subscribe", "error"]
    assert isinstance(probe.error, TypeError | ZeroDivisionError | OSError)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 6, 10, 20, 300])
def test_rule_105_exactly_n_elements_and_the_end_with_exactly_that_demand(n):
    for source in (flow.from_iterable(range(n)), flow.generate(lambda: (i for i in range(n)))):
        probe = Probe()
        source.subscribe(probe)
        for _ in range(n):
            assert not probe.completed
            probe.request(1)
        assert probe.items == list(range(n))
        assert probe.completed
        assert probe.signals.count("complete") == 1


def test_rule_105_an_empty_iterable_completes_without_any_request():
    for source in (flow.from_iterable([]), flow.empty(), flow.generate(list)):
        probe = Probe()
        source.subscribe(probe)
        assert probe.signals == ["subscribe", "complete"]


def test_rule_110_and_111_each_subscriber_gets_the_whole_stream_at_its_own_pace():
    source = flow.from_iterable(range(5))
    probes = [Probe(first=2), Probe(first=UNBOUNDED), Probe(first=1, each=1)]
    for probe in probes:
        source.subscribe(probe)
    assert [len(probe.items) for probe in probes] == [2, 5, 5]
    probes[0].request(3)
    assert probes[0].items == probes[1].items == probes[2].items


def test_subscribers_of_one_iterator_share_what_it_yields_and_it_is_left_open():
    iterator = (number for number in range(6))
    source = flow.from_iterable(iterator, lookahead=False)
    first = Probe(first=2)
    source.subscribe(first)
    first.cancel()
    second = Probe(first=2)
    source.subscribe(second)
    assert (first.items, second.items) == ([0, 1], [2, 3])
    second.cancel()
    assert next(iterator) == 4


def test_rule_104_elements_before_a_failure_are_delivered():
    def three():
        yield from range(3)
        raise OSError("disk")

    class Sized:
        def __len__(self):
            return 9

        def __iter__(self):
            return three()

    for source in (flow.generate(three), flow.from_iterable(Sized())):
        probe = Probe(first=10)
        source.subscribe(probe)
        assert probe.items == [0, 1, 2]
        assert isinstance(probe.error, OSError)
        patient = Probe(first=2)
        source.subscribe(patient)
        assert patient.error is None
        patient.request(1)
        assert patient.items == [0, 1, 2]
        assert isinstance(patient.error, OSError)


def test_none_in_an_iterable_ends_in_a_type_error():
    probe = Probe(first=10)
    flow.from_iterable([1, None, 2]).subscribe(probe)
    assert probe.items == [1]
    assert isinstance(probe.error, TypeError)


def test_an_endless_source_is_lazy_and_stops_with_its_subscriber():
    probe = Probe(first=UNBOUNDED, on_item=lambda item: item == 999 and probe.cancel())
    flow.generate(itertools.count).subscribe(probe)
    assert probe.items == list(range(1000))


def test_a_generator_is_taken_from_element_by_element_and_one_ahead():
    taken = []

    def numbers():
        for number in range(10):
            taken.append(number)
            yield number

    probe = Probe()
    flow.generate(numbers).subscribe(probe)
    assert taken == [0]
    probe.request(2)
    assert taken == [0, 1, 2]
    taken.clear()
    exact = Probe()
    flow.generate(numbers, lookahead=False).subscribe(exact)
    assert taken == []
    exact.request(2)
    assert taken == [0, 1]
    exact.request(8)
    assert not exact.completed
    exact.request(1)
    assert exact.completed


def test_each_element_of_a_generator_is_delivered_before_the_next_is_made():
    order = []

    def numbers():
        for number in range(3):
            order.append(f"made {number}")
            yield number

    flow.generate(numbers).subscribe(
        Probe(first=UNBOUNDED, on_item=lambda item: order.append(f"given {item}"))
    )
    assert order == ["made 0", "given 0", "made 1", "given 1", "made 2", "given 2"]


@pytest.mark.parametrize("end", ["cancel", "complete"])
def test_what_generate_made_is_closed_at_the_end(end):
    closed = []

    def numbers():
        try:
            yield from range(3)
        finally:
            closed.append(True)

    probe = Probe(first=1)
    flow.generate(numbers).subscribe(probe)
    assert not closed
    if end == "cancel":
        probe.cancel()
    else:
        probe.request(5)
    assert closed == [True]


def test_never_gives_nothing_but_the_subscription():
    probe = Probe(first=5)
    flow.never().subscribe(probe)
    assert probe.signals == ["subscribe"]
    probe.request(-1)
    assert probe.signals == ["subscribe", "error"]


def test_error_gives_the_same_object_to_all():
    failure = OSError()
    source = flow.error(failure)
    probes = [Probe(), Probe()]
    for probe in probes:
        source.subscribe(probe)
    assert all(probe.error is failure for probe in probes)
    with pytest.raises(TypeError, match="error: "):
        flow.error(KeyboardInterrupt())  # type: ignore[arg-type]


def test_rule_303_constant_stack_over_a_hundred_thousand_elements():
    limit = sys.getrecursionlimit()
    probe = Probe(first=1, each=1)
    flow.from_iterable(range(100_000)).subscribe(probe)
    assert len(probe.items) == 100_000 > limit
    assert probe.deepest == 1
    assert probe.completed


@settings(max_examples=scaled(60), deadline=None)
@given(st.integers(0, 600), st.lists(st.integers(1, 300), max_size=8), st.booleans())
def test_rule_308_delivered_is_at_most_requested_and_in_order(length, requests, sized):
    source = flow.from_iterable(range(length)) if sized else flow.generate(lambda: iter(list(range(length))))
    probe = Probe()
    source.subscribe(probe)
    for n in requests:
        probe.request(n)
    wanted = min(sum(requests), length)
    assert probe.items == list(range(wanted))
    assert probe.completed == (wanted == length)


def test_rule_313_the_subscriber_is_dropped_after_cancel():
    source = flow.from_iterable(range(10))
    probe = Probe(first=1)
    source.subscribe(probe)
    reference = weakref.ref(probe)
    subscription = probe.subscription
    subscription.cancel()
    del probe
    gc.collect()
    assert reference() is None
    subscription.request(1)


def test_subscribers_may_name_their_executor():
    probe = Probe(first=UNBOUNDED)
    with ThreadPoolExecutor(1, thread_name_prefix="strand") as pool:
        flow.from_iterable(range(1000)).subscribe(probe, executor=pool)
        assert probe.ended.wait(60)
    assert probe.items == list(range(1000))
    assert probe.threads == {"strand_0"}
    where = ManualExecutor()
    late = Probe(first=1)
    flow.from_iterable([1]).subscribe(late, executor=where)
    assert late.signals == []
    where.run_all()
    assert late.signals == ["subscribe", "next", "complete"]


async def test_a_source_on_the_running_loop():
    probe = Probe(first=UNBOUNDED)
    flow.from_iterable(range(1000)).subscribe(probe, executor=asyncio.get_running_loop())
    assert probe.signals == []
    async with asyncio.timeout(60):
        while not probe.completed:  # noqa: ASYNC110 - lets the loop deliver
            await asyncio.sleep(0)
    assert probe.items == list(range(1000))
    assert probe.threads == {threading.current_thread().name}
