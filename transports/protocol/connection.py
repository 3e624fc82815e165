"""The part of a connection that both protocols share: phases, entries, rate limit and end.

The machine does no I/O, awaits nothing and has no clock: bytes and the time come in as arguments, and effects come out, in
order. Each protocol adds the meaning of its messages.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from publishers.errors import PenstockError
from transports.codec.envelope import Init
from transports.errors import CloseCode, GoingAway, TooManySubscriptions, Violation, close_reason
from transports.limits import Limits
from transports.problems import Problem, describe
from transports.protocol.states import ConnectionPhase, EntryStage, PhaseEvent, advance

__all__ = ["Authenticate", "Cancel", "Close", "Demand", "Effect", "Send", "ServerConnection", "WireEntry"]

INIT_TIMEOUT: Final = 3.0
"""Seconds for a client to send ``connection_init``, which it does at once; `Limits.request_timeout` was for the request before it."""

_BURST: Final = 2.0


class WireEntry:
    """One subscription or other operation of a connection.

    The machine compares entries by identity, not by id: a client may reuse an id after the operation has ended, and nothing
    that arrives late for the old operation may be sent under it.

    Attributes:
        id: The client's id of the operation.
        head: The first bytes of each of its ``next`` messages.
        stage: Its stage.
    """

    __slots__ = ("head", "id", "stage")

    def __init__(self, operation: str, head: bytes) -> None:
        self.id: str = operation
        self.head: bytes = head
        self.stage: EntryStage = EntryStage.REQUESTED

    @property
    def ended(self) -> bool:
        """Whether nothing may be sent for it any more."""
        return self.stage is EntryStage.ENDED


class Effect(msgspec.Struct, frozen=True):
    """An action for the driver."""


class Send(Effect, frozen=True):
    """Write one message."""

    data: bytes


class Authenticate(Effect, frozen=True):
    """Authenticate the client, and call ``acknowledge`` or ``refuse``."""

    payload: Mapping[str, Any]


class Demand(Effect, frozen=True):
    """Request ``n`` more events."""

    entry: WireEntry
    n: int


class Cancel(Effect, frozen=True):
    """Cancel an operation; the machine has forgotten the entry."""

    entry: WireEntry


class Close(Effect, frozen=True):
    """Close the connection."""

    code: CloseCode
    reason: str


_Entry = TypeVar("_Entry", bound=WireEntry)


class ServerConnection(ABC, Generic[_Entry]):
    """The server side of one connection, for any protocol.

    Attributes:
        limits: Bounds of the connection.
        phase: Its phase.
        entries: Its operations, by the ids of the client.
        errors: Counts the errors sent to the client, by code; may be shared with other connections.

    Args:
        limits: Bounds of the connection.
        now: The time in seconds, of any monotonic clock.
    """

    _late: ClassVar[tuple[type, ...]]
    """The messages that are legal only after ``connection_ack``."""
    _free: ClassVar[tuple[type, ...]] = ()
    """The messages that have a bound of their own and are exempt from the rate of control messages."""

    def __init__(self, limits: Limits, *, now: float) -> None:
        self.limits = limits
        self.phase: ConnectionPhase = ConnectionPhase.OPENED
        self.entries: dict[str, _Entry] = {}
        self.errors: Counter[str] = Counter()
        self._init_by = now + INIT_TIMEOUT
        self._tokens = _BURST * limits.messages_per_second
        self._refilled = now

    # Added by each protocol.

    @abstractmethod
    def _take(self, text: bytes | str, now: float) -> list[Effect]:
        """Parses and admits a message, and returns its effects."""

    @abstractmethod
    def _ack(self) -> bytes:
        """Returns the message ``connection_ack``."""

    @staticmethod
    @abstractmethod
    def _error(name: str, problem: Problem) -> bytes:
        """Returns the message ``error``."""

    @staticmethod
    @abstractmethod
    def _in_use(name: str) -> str:
        """Returns the error text for an id that is already in use."""

    @property
    @abstractmethod
    def _beat(self) -> float:
        """The time at which an acknowledged connection has work to do; infinite for never."""

    # Events of the client.

    def receive(self, text: bytes | str, now: float) -> list[Effect]:
        """Handles one message and returns its effects."""
        if self.phase is ConnectionPhase.CLOSED:
            return []
        try:
            return self._take(text, now)
        except Violation as violation:
            return self.close(violation.close_code, str(violation))

    def _admit(self, message: object, now: float) -> None:
        rate = self.limits.messages_per_second
        self._tokens = min(_BURST * rate, self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        if not isinstance(message, self._free):
            self._spend()
        if isinstance(message, Init):
            self.phase = advance(self.phase, PhaseEvent.INIT)
        elif isinstance(message, self._late):
            self.phase = advance(self.phase, PhaseEvent.WORK)

    def _spend(self) -> None:
        """Charges a message to the rate limit.

        Raises:
            Violation: 4490, if the rate is exceeded.
        """
        self._tokens -= 1
        if self._tokens < 0:
            rate = self.limits.messages_per_second
            raise Violation(
                CloseCode.FLOOD, f"more than {rate} messages a second; request more events at once"
            )

    def _enter(self, name: str, make: Callable[[], tuple[_Entry, Effect]]) -> list[Effect]:
        """Starts an operation, or refuses it with an error. ``make`` runs only once the id is known to be free."""
        if name in self.entries:
            raise Violation(CloseCode.ID_IN_USE, self._in_use(name))
        try:
            if self.phase is ConnectionPhase.DRAINING:
                raise GoingAway
            if len(self.entries) >= self.limits.subscriptions:
                raise TooManySubscriptions(self.limits.subscriptions)
            entry, effect = make()
        except PenstockError as error:
            return [self._refusal(name, describe(error))]
        self.entries[name] = entry
        return [effect]

    def _refusal(self, name: str, problem: Problem) -> Send:
        """Returns the error message and counts the error."""
        self.errors[problem.code] += 1
        return Send(self._error(name, problem))

    def _forget(self, entry: _Entry | None) -> list[Effect]:
        if entry is None or entry.ended:
            return []
        entry.stage = EntryStage.ENDED
        del self.entries[entry.id]
        return [Cancel(entry)]

    # Calls of the server.

    def acknowledge(self) -> list[Effect]:
        """Admits the client: it may start operations from now on."""
        if self.phase is not ConnectionPhase.GREETED:
            return []
        self.phase = advance(self.phase, PhaseEvent.ACK)
        return [Send(self._ack())]

    def refuse(self, why: str) -> list[Effect]:
        """Refuses the client and closes the connection."""
        return self.close(CloseCode.FORBIDDEN, why)

    # Timers.

    @property
    def due(self) -> float:
        """The time at which there is work to do; infinite for never."""
        if self.phase is ConnectionPhase.CLOSED:
            return math.inf
        if self.phase.early:
            # After the greeting the client waits for authentication, which the server bounds itself.
            return self._init_by if self.phase is ConnectionPhase.OPENED else math.inf
        return self._beat

    def tick(self, now: float) -> list[Effect]:
        """Does the work that is due."""
        if self.phase is ConnectionPhase.OPENED and now >= self._init_by:
            waited = f"no connection_init within {INIT_TIMEOUT:g} s"
            return self.close(CloseCode.INIT_TIMEOUT, waited)
        return []

    # End of the connection.

    def close(self, code: CloseCode, why: str) -> list[Effect]:
        """Closes the connection and ends everything that runs on it."""
        if self.phase is ConnectionPhase.CLOSED:
            return []
        return [*self.lost(), Close(code, close_reason(why))]

    def lost(self) -> list[Effect]:
        """Ends everything that runs on the connection, which is gone."""
        self.phase = advance(self.phase, PhaseEvent.CLOSE)
        effects: list[Effect] = []
        for entry in list(self.entries.values()):
            effects += self._forget(entry)
        return effects
