"""The operator `map`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from flow.contracts import Subscriber
from flow.misuse import require_functions
from flow.operators.link import Fitting, In, Link, Out, lift, none_is_no_element, present, present_all

__all__ = ["Mapping", "map"]

A = TypeVar("A")
B = TypeVar("B")


def map(f: Callable[[In], Out]) -> Fitting[In, Out]:  # noqa: A001 - the name of the field
    """Replace each element by ``f(element)``.

    If ``f`` raises, or returns ``None``, upstream is cancelled and the stream ends in ``on_error``.
    """
    require_functions(f=f)
    return lift(Mapping, lambda: (f,))


class Mapping(Link[A, B]):
    """Passes on ``f(element)``."""

    __slots__ = ("_f",)

    def __init__(self, below: Subscriber[B], f: Callable[[A], B]) -> None:
        super().__init__(below)
        self._f = f

    def on_next(self, item: A, /) -> None:
        """Pass on the result for the element."""
        present(item, "the element")
        try:
            made = self._f(item)
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            self._finish(error)
            return
        if made is None:
            self._finish(none_is_no_element())
        else:
            self._pass(made)

    def _on_batch(self, items: Sequence[A], /) -> None:
        present_all(items)
        made: list[B] = []
        failure: Exception | None = None
        try:
            for item in items:
                result = self._f(item)
                if result is None:
                    raise none_is_no_element()
                made.append(result)
        except Exception as error:  # noqa: BLE001 - rule 1.4: signalled to the subscriber
            failure = error
        self._pass_all(made, failure)
