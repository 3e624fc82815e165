"""Applying operators in sequence."""

from typing import Any, TypeVar, overload

from flow.contracts import Publisher
from flow.misuse import require_function, require_publisher
from flow.operators.link import Operator

__all__ = ["pipe"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")
Z = TypeVar("Z")


@overload
def pipe(publisher: Publisher[A], /) -> Publisher[A]: ...


@overload
def pipe(publisher: Publisher[A], b: Operator[A, B], /) -> Publisher[B]: ...


@overload
def pipe(publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], /) -> Publisher[C]: ...


@overload
def pipe(
    publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], d: Operator[C, D], /
) -> Publisher[D]: ...


@overload
def pipe(
    publisher: Publisher[A], b: Operator[A, B], c: Operator[B, C], d: Operator[C, D], e: Operator[D, E], /
) -> Publisher[E]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    /,
) -> Publisher[F]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    /,
) -> Publisher[G]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    h: Operator[G, H],
    /,
) -> Publisher[H]: ...


@overload
def pipe(
    publisher: Publisher[A],
    b: Operator[A, B],
    c: Operator[B, C],
    d: Operator[C, D],
    e: Operator[D, E],
    f: Operator[E, F],
    g: Operator[F, G],
    h: Operator[G, H],
    i: Operator[H, Z],
    /,
) -> Publisher[Z]: ...


@overload
def pipe(
    publisher: Publisher[Any],
    b: Operator[Any, Any],
    c: Operator[Any, Any],
    d: Operator[Any, Any],
    e: Operator[Any, Any],
    f: Operator[Any, Any],
    g: Operator[Any, Any],
    h: Operator[Any, Any],
    i: Operator[Any, Any],
    /,
    *operators: Operator[Any, Any],
) -> Publisher[Any]: ...


def pipe(publisher: Publisher[Any], /, *operators: Operator[Any, Any]) -> Publisher[Any]:
    """Apply operators from left to right.

    Types are followed through the first eight. The types of a lambda are inferred by pyright everywhere, by mypy in the first
    operator only; later they may be ``Any``. With the methods of `flow.Flow`, both infer everything.

    ::

        flow.pipe(publisher, operators.map(str), operators.take(10))
    """
    require_publisher("publisher", publisher)
    for number, operator in enumerate(operators, 1):
        require_function(f"operator {number}", operator)
        publisher = operator(publisher)
        require_publisher(f"the result of operator {number}", publisher)
    return publisher
