"""Byte budgets of a server: shared by its clients, of which none gets all."""

import threading
from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import Final, Self

from publishers.errors import TooCostly

__all__ = ["Charge", "Charges", "SharedBytes"]

_LESS: Final = "to send less at once"
_CHEAPER: Final = "to send it again when others have been answered"


class SharedBytes:
    """A budget of a server, which its clients take from and return to. Thread-safe.

    Attributes:
        taken: The bytes that are taken.

    Args:
        option: The name of the option that bounds it.
        limit: The bound.
        what: The thing that is counted, for errors.
        share: The name of the option that bounds what one payer takes, and the bound. None for half of the budget, so that a
            further payer always finds some.
    """

    def __init__(self, option: str, limit: int, what: str, *, share: tuple[str, int] | None = None) -> None:
        self.taken: int = 0
        self._bound = option, limit
        self._share = share or (option, -(-limit // 2))
        self._what = what
        self._taken: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def take(self, payer: Hashable, nbytes: int) -> None:
        """Takes bytes for a payer.

        Raises:
            TooCostly: If not enough is left for the payer or for all; retryable, unless ``nbytes`` exceeds the bound itself.
        """
        with self._lock:
            for (option, most), taken in (
                (self._share, self._taken.get(payer, 0)),
                (self._bound, self.taken),
            ):
                if nbytes > most:
                    raise TooCostly(option, nbytes, most, _LESS, what=self._what)
                if nbytes > most - taken:
                    raise TooCostly(option, nbytes, most, _CHEAPER, what=self._what, left=most - taken)
            self.taken += nbytes
            self._taken[payer] += nbytes

    def give(self, payer: Hashable, nbytes: int) -> None:
        """Returns bytes of a payer."""
        with self._lock:
            self.taken -= nbytes
            self._taken[payer] -= nbytes
            if not self._taken[payer]:
                del self._taken[payer]


class Charge:
    """The bytes that one request or transaction has taken from a budget. A context manager, which returns all on leaving.

    Attributes:
        nbytes: The bytes.

    Args:
        budget: The budget.
        payer: Who is charged.
    """

    def __init__(self, budget: SharedBytes, payer: Hashable) -> None:
        self.nbytes: int = 0
        self._budget = budget
        self._payer = payer

    def take(self, nbytes: int) -> None:
        """Takes more.

        Raises:
            TooCostly: As ``SharedBytes.take``.
        """
        self._budget.take(self._payer, nbytes)
        self.nbytes += nbytes

    def give(self, nbytes: int) -> None:
        """Returns some."""
        self.nbytes -= nbytes
        self._budget.give(self._payer, nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.give(self.nbytes)


class Charges:
    """What is charged for each of several requests; on one thread."""

    def __init__(self) -> None:
        self._charged: dict[Hashable, Charge] = {}

    def take(self, request: Hashable, budget: SharedBytes, payer: Hashable, nbytes: int) -> None:
        """Charges a request, in place of what was charged for it.

        Raises:
            TooCostly: As ``SharedBytes.take``; what was charged for it stays so.
        """
        charge = Charge(budget, payer)
        charge.take(nbytes)
        self.give(request)
        self._charged[request] = charge

    def give(self, request: Hashable) -> None:
        """Returns what is charged for a request, if anything is."""
        charge = self._charged.pop(request, None)
        if charge is not None:
            charge.give(charge.nbytes)

    def close(self) -> None:
        """Returns everything."""
        for request in list(self._charged):
            self.give(request)
