import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from flow import operators as op
from tests.flow.operators.helpers import Upstream, collect, run

LISTS = st.lists(st.lists(st.integers(), max_size=8), min_size=1, max_size=5)


def sources(lists):
    return [flow.from_iterable(items) for items in lists]


@given(LISTS, st.integers(1, 5))
def test_merge_publishes_everything_and_keeps_the_order_of_each(lists, each):
    tagged = [[(number, item) for item in items] for number, items in enumerate(lists)]
    first, *others = sources(tagged)
    probe = collect(op.merge(*others, prefetch=3)(first), each, each)
    for number, items in enumerate(tagged):
        assert [item for item in probe.items if item[0] == number] == items
    assert len(probe.items) == sum(map(len, lists))
    assert probe.completed


@given(LISTS, st.integers(1, 5))
def test_concat_publishes_one_after_the_other(lists, each):
    first, *others = sources(lists)
    probe = collect(op.concat(*others)(first), each, each)
    assert probe.items == [item for items in lists for item in items]
    assert probe.completed


@given(LISTS, st.integers(1, 5))
def test_zip_does_what_that_of_the_standard_library_does(lists, each):
    first, *others = sources(lists)
    probe = collect(op.zip(*others, prefetch=3)(first), each, each)
    assert probe.items == list(zip(*lists, strict=False))
    assert probe.completed


@given(LISTS, st.integers(1, 4), st.integers(1, 5))
def test_flat_map_publishes_everything_whatever_its_concurrency(lists, concurrency, each):
    probe = run(lists, op.flat_map(flow.from_iterable, concurrency, 2), first=each, each=each)
    assert sorted(probe.items) == sorted(item for items in lists for item in items)
    assert probe.completed
    probe = run(lists, op.flat_map(flow.from_iterable, 1, 2), first=each, each=each)
    assert probe.items == [item for items in lists for item in items]


def test_merge_serves_all_in_turn():
    a, b = Upstream(), Upstream()
    probe = collect(op.merge(b)(a), first=0)
    a.send(1, 2, 3)
    b.send(4, 5, 6)
    for _ in range(6):
        probe.request(1)
    assert probe.items == [1, 4, 2, 5, 3, 6]


def test_merge_has_at_most_prefetch_of_each_under_way():
    a, b = Upstream(), Upstream()
    probe = collect(op.merge(b, prefetch=4)(a), first=0)
    assert a.requests == b.requests == [4]
    a.send(1, 2, 3, 4)
    probe.request(3)
    assert a.requests == [4, 3]
    assert b.requests == [4]


def test_flat_map_has_at_most_so_many_publishers_at_once():
    upstream, inner = Upstream(), []

    def publisher(_):
        inner.append(Upstream())
        return inner[-1]

    probe = collect(op.flat_map(publisher, 2)(upstream))
    assert upstream.requests == [2]
    upstream.send("a", "b")
    assert len(inner) == 2
    inner[0].send(1)
    inner[0].complete()
    assert upstream.requests == [2, 1]
    upstream.send("c")
    inner[2].send(2)
    upstream.complete()
    inner[1].complete()
    assert not probe.completed
    inner[2].complete()
    assert probe.items == [1, 2]
    assert probe.completed


@pytest.mark.parametrize("operator", [op.merge, op.zip], ids=["merge", "zip"])
def test_an_error_of_any_cancels_the_others_and_overtakes_what_is_buffered(operator):
    a, b = Upstream(), Upstream()
    probe = collect(operator(b)(a), first=0)
    a.send(1)
    error = OSError()
    b.fail(error)
    assert probe.error is error
    assert (a.cancelled, b.cancelled) == (1, 0)


def test_a_delayed_error_waits_for_all_others():
    a, b, c = Upstream(), Upstream(), Upstream()
    probe = collect(op.merge(b, c, delay_error=True)(a))
    errors = [OSError(), KeyError()]
    a.fail(errors[0])
    c.fail(errors[1])
    b.send(1)
    assert probe.error is None
    b.complete()
    assert probe.items == [1]
    assert isinstance(probe.error, ExceptionGroup)
    assert list(probe.error.exceptions) == errors


def test_a_single_delayed_error_is_told_as_it_is():
    error = OSError()
    probe = run(
        [1, 2],
        op.flat_map(lambda n: flow.error(error) if n == 1 else flow.from_iterable([n]), delay_error=True),
    )
    assert probe.items == [2]
    assert probe.error is error


@pytest.mark.parametrize("f", [lambda _: 1 // 0, lambda _: None, lambda _: 3])
def test_what_makes_no_publisher_ends_the_stream(f):
    upstream = Upstream()
    probe = collect(op.flat_map(f)(upstream))
    upstream.send(1)
    assert probe.signals == ["subscribe", "error"]
    assert upstream.cancelled == 1


def test_zip_ends_with_the_shortest_without_demand_and_cancels_the_rest():
    a, b = Upstream(), Upstream()
    probe = collect(op.zip(b)(a), first=1)
    a.send(1, 2)
    b.send(3)
    assert probe.items == [(1, 3)]
    b.complete()
    assert probe.completed
    assert (a.cancelled, b.cancelled) == (1, 0)


def test_concat_requests_of_each_what_is_still_wanted():
    a, b = Upstream(), Upstream()
    probe = collect(op.concat(b)(a), first=5)
    a.send(1, 2)
    assert b.subscribed == 0
    a.complete()
    assert b.requests == [3]
    probe.request(2)
    assert b.requests == [3, 2]
    assert a.requests == [5]
    assert a.cancelled == 0


def test_concat_does_not_go_on_after_an_error_or_a_cancel():
    a, b = Upstream(), Upstream()
    probe = collect(op.concat(b)(a))
    a.fail(OSError())
    assert probe.signals == ["subscribe", "error"]
    a, b = Upstream(), Upstream()
    probe = collect(op.concat(b)(a))
    probe.cancel()
    a.complete()
    assert a.cancelled == 1
    assert b.subscribed == 0
    assert probe.signals == ["subscribe"]


@pytest.mark.parametrize("operator", [op.concat, op.merge], ids=["concat", "merge"])
def test_rule_303_many_empty_publishers_do_not_deepen_the_stack(operator):
    probe = collect(operator(*[flow.empty()] * 1500)(flow.empty()), first=0)
    assert probe.signals == ["subscribe", "complete"]
    probe = run(range(5000), op.flat_map(lambda _: flow.empty()), first=0)
    assert probe.completed


def test_publishers_may_signal_on_many_threads_at_once():
    ups = [Upstream() for _ in range(4)]
    probe = collect(op.merge(*ups[1:], prefetch=500)(ups[0]))
    threads = [
        threading.Thread(target=up.send, args=range(n * 1000, n * 1000 + 300)) for n, up in enumerate(ups)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for up in ups:
        up.complete()
    assert probe.completed
    assert probe.overlaps == 0
    assert sorted(probe.items) == [n * 1000 + i for n in range(4) for i in range(300)]


def test_bounds_are_positive_integers():
    for make in (
        lambda: op.merge(prefetch=0),
        lambda: op.zip(prefetch=0),
        lambda: op.flat_map(flow.from_iterable, 0),
        lambda: op.flat_map(flow.from_iterable, 1, True),
    ):
        with pytest.raises(ValueError, match="an integer of at least 1"):
            make()


@pytest.mark.parametrize("other", [None, 3])
@pytest.mark.parametrize("operator", [op.concat, op.merge, op.zip], ids=["concat", "merge", "zip"])
def test_what_is_no_publisher_is_refused_at_once(operator, other):
    with pytest.raises(TypeError, match=r"publisher 1: .* a publisher, which has subscribe"):
        operator(other)
