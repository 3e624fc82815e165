import inspect

import pytest

import flow
from flow import Flow, Overflow
from flow import operators as op
from tests.flow.operators.helpers import ManualTimers, collect

NUMBERS = flow.from_iterable([1, 2, 3, 4, 5, 6])
TIMERS = ManualTimers()

PAIRS = {
    "map": lambda f: f.map(str),
    "filter": lambda f: f.filter(lambda n: n % 2),
    "scan": lambda f: f.scan(lambda a, b: a + b, 0),
    "distinct_until_changed": lambda f: f.distinct_until_changed(lambda n: n // 2),
    "flat_map": lambda f: f.flat_map(lambda n: flow.from_iterable([n] * n), 2, 3),
    "buffer": lambda f: f.buffer(4, 10, timers=TIMERS),
    "take": lambda f: f.take(2),
    "take_while": lambda f: f.take_while(lambda n: n < 4),
    "skip": lambda f: f.skip(2),
    "limit_rate": lambda f: f.limit_rate(4, 2),
    "merge": lambda f: f.merge(NUMBERS, prefetch=2),
    "concat": lambda f: f.concat(NUMBERS),
    "zip": lambda f: f.zip(NUMBERS, NUMBERS),
    "retry": lambda f: f.retry(1, op.AT_ONCE, timers=TIMERS),
    "on_error_resume": lambda f: f.on_error_resume(lambda _: NUMBERS),
    "timeout": lambda f: f.timeout(5, timers=TIMERS),
    "publish_on": lambda f: f.publish_on(flow.INLINE, prefetch=2),
    "on_backpressure_buffer": lambda f: f.on_backpressure_buffer(3, Overflow.DROP_OLDEST),
    "on_backpressure_drop": lambda f: f.on_backpressure_drop(),
    "on_backpressure_latest": lambda f: f.on_backpressure_latest(),
    "on_backpressure_error": lambda f: f.on_backpressure_error(),
    "tap": lambda f: f.tap(lambda _: None),
}


class Piping:
    """Applies the function of the name that is called as a method."""

    def __getattr__(self, name):
        return lambda *arguments, **named: flow.pipe(NUMBERS, getattr(op, name)(*arguments, **named))


@pytest.mark.parametrize("apply", PAIRS.values(), ids=PAIRS.keys())
def test_a_method_does_what_the_function_of_its_name_does(apply):
    fluent, piped = collect(apply(Flow(NUMBERS))), collect(apply(Piping()))
    assert fluent.signals == piped.signals
    assert fluent.items == piped.items
    assert fluent.completed


def test_every_operator_is_a_method_and_has_the_same_defaults():
    for name in PAIRS:
        function = inspect.signature(getattr(op, name)).parameters
        method = inspect.signature(getattr(Flow, name)).parameters
        for parameter, found in method.items():
            if parameter != "self" and name != "scan":
                assert found.default == function[parameter].default, (name, parameter)
    methods = {name for name in vars(Flow) if not name.startswith("_")}
    assert methods - {"subscribe", "through"} == set(PAIRS)


def test_a_flow_is_a_publisher_and_takes_operators_of_your_own():
    own = Flow(NUMBERS).through(op.map(str)).take(1)
    assert isinstance(own, flow.Publisher)
    assert collect(own).items == ["1"]
    with pytest.raises(TypeError):
        own.subscribe(None)


def test_pipe_applies_from_left_to_right():
    assert flow.pipe(NUMBERS) is NUMBERS
    assert collect(flow.pipe(NUMBERS, op.skip(1), op.take(1), op.map(str))).items == ["2"]
