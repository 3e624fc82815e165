"""Argument checks of public functions; their errors name the rule, if there is one, and what would be right."""

from collections.abc import AsyncIterable, Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Final, ParamSpec, TypeVar

__all__ = [
    "names_arguments",
    "require_function",
    "require_functions",
    "require_iterable",
    "require_publisher",
    "require_seconds",
    "require_subscriber",
]

P = ParamSpec("P")
R = TypeVar("R")

_SIGNALS: Final = ("on_subscribe", "on_error", "on_complete")


def require_subscriber(subscriber: object) -> None:
    """Refuse an object that is not a subscriber.

    Raises:
        TypeError: If it is ``None``, or lacks a method (rule 1.9).
    """
    if subscriber is None:
        raise TypeError(
            "rule 1.9: the subscriber is None; what has on_subscribe, on_next, on_error and on_complete is expected"
        )
    lacking = []
    for name in _SIGNALS:
        if not callable(getattr(subscriber, name, None)):
            lacking.append(name)  # noqa: PERF401 - a loop makes no call for each subscription
    if not callable(getattr(subscriber, "on_next", None)) and not callable(
        getattr(subscriber, "on_next_batch", None)
    ):
        lacking.append("on_next")
    if lacking:
        raise TypeError(
            f"rule 1.9: the subscriber, of type {type(subscriber).__name__}, has no {' and no '.join(lacking)};"
            " to subscribe with plain functions there is flow.subscribe"
        )


def require_publisher(name: str, publisher: object) -> None:
    """Refuse an object that is not a publisher.

    Raises:
        TypeError: If it has no ``subscribe``.
    """
    if callable(getattr(publisher, "subscribe", None)):
        return
    remedy = ""
    if isinstance(publisher, AsyncIterable):
        remedy = "; flow.from_async_iterable makes one of an asynchronous iterable"
    elif isinstance(publisher, Iterable):
        remedy = "; flow.from_iterable makes one of an iterable"
    elif callable(publisher):
        remedy = "; an operator has to be called first, as in op.map(str)"
    raise TypeError(
        f"{name}: {type(publisher).__name__}; a publisher, which has subscribe(subscriber), is expected{remedy}"
    )


def require_functions(*, optional: bool = False, **functions: object) -> None:
    """Refuse arguments that are not functions.

    Raises:
        TypeError: If an argument is not a function; with ``optional``, ``None`` is allowed.
    """
    for name, function in functions.items():
        if not optional or function is not None:
            require_function(name, function, "a function or None" if optional else "a function")


def require_function(name: str, function: object, expected: str = "a function") -> None:
    """Refuse an object that is not callable.

    Raises:
        TypeError: If it is not callable.
    """
    if not callable(function):
        raise TypeError(f"{name}: {function!r}; {expected} is expected")


def require_iterable(name: str, iterable: object) -> None:
    """Refuse an object that is not iterable.

    Raises:
        TypeError: If it has neither ``__iter__`` nor ``__getitem__``.
    """
    if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
        remedy = "; there is flow.from_async_iterable" if isinstance(iterable, AsyncIterable) else ""
        raise TypeError(f"{name}: {type(iterable).__name__}; an iterable is expected{remedy}")


def require_seconds(name: str, seconds: object) -> None:
    """Refuse an argument that is not a duration.

    Raises:
        ValueError: If it is not a number, or less than 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{name}: {seconds!r}; a number of seconds of at least 0 is expected")


def names_arguments(*others: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the error of an unknown keyword argument name the one that is meant; a decorator.

    Args:
        others: Functions and classes whose arguments are given to this function by mistake, as those of the criteria that it takes.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*given: P.args, **named: P.kwargs) -> R:
            try:
                return function(*given, **named)
            except TypeError:
                mine = _keywords(function)
                unknown = next((name for name in named if name not in mine), None)
                if unknown is None:
                    raise
                wrong = (
                    f"{_name(function)}() has no argument {unknown!r}; {_suggestion(unknown, mine, others)}"
                )
            raise TypeError(wrong)

        return call

    return decorate


def _suggestion(unknown: str, mine: Iterable[str], others: Iterable[Callable[..., object]]) -> str:
    known = {name: f"{_name(other)}({name}=...)" for other in others for name in _keywords(other)}
    known |= {name: f"{name}=" for name in mine}
    near = get_close_matches(unknown, known, 1)
    return f"did you mean {known[near[0]]}?" if near else f"it has {', '.join(mine)}"


def _name(function: Callable[..., object]) -> str:
    return function.__qualname__.removesuffix(".__init__")


def _keywords(function: Callable[..., object]) -> Iterable[str]:
    kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [
        one.name
        for one in signature(function).parameters.values()
        if one.kind in kinds and one.name != "self"
    ]
