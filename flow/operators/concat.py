"""The operator `concat`."""

from collections.abc import Iterator
from typing import TypeVar

from flow.contracts import Publisher, Subscriber
from flow.operators.link import Operator, require_publishers
from flow.operators.switch import Switch, switched

__all__ = ["concat"]

T = TypeVar("T")


def concat(*others: Publisher[T]) -> Operator[T, T]:
    """Publish the elements of the publisher, and then those of the others, one publisher after the other.

    Each is subscribed to when the one before has completed, and receives only the subscriber's own demand.
    """
    require_publishers(others)
    return switched(lambda _, below: _Concat(below, iter(others)))


class _Concat(Switch[T]):
    __slots__ = ("_others",)

    def __init__(self, below: Subscriber[T], others: Iterator[Publisher[T]]) -> None:
        super().__init__(below)
        self._others = others

    def _follow(self, error: Exception | None) -> None:
        if error is None:
            for following in self._others:
                self.switch(following)
                return
        self.finish(error)
