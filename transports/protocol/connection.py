"""What both protocols share of a connection: its phases, its entries, its rate and its end.

It does no I/O, awaits nothing and knows no clock: bytes and the time come in as arguments, and what is to be done comes
out as effects, in order. A protocol adds what its messages mean.
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

_BURST: Final = 2.0


class WireEntry:
    """One subscription or other operation of a connection.

    Its identity, and not its id, is what the machine goes by: an id may be used again after its end, and nothing that
    still arrives for the old operation may be sent under it.

    Attributes:
        id: What the client calls it.
        head: How each of its ``next`` messages begins.
        stage: Where it is.
    """

    __slots__ = ("head", "id", "stage")

    def __init__(self, operation: str, head: bytes) -> None:
        self.id = operation
        self.head = head
        self.stage = EntryStage.REQUESTED

    @property
    def ended(self) -> bool:
        """Whether nothing may be sent for it any more."""
        return self.stage is EntryStage.ENDED


class Effect(msgspec.Struct, frozen=True):
    """What is to be done."""


class Send(Effect, frozen=True):
    """Write one message."""

    data: bytes


class Authenticate(Effect, frozen=True):
    """Judge who this is, and call ``acknowledge`` or ``refuse``."""

    payload: Mapping[str, Any]


class Demand(Effect, frozen=True):
    """Request ``n`` more events."""

    entry: WireEntry
    n: int


class Cancel(Effect, frozen=True):
    """Stop an operation; the machine has forgotten the entry."""

    entry: WireEntry


class Close(Effect, frozen=True):
    """Close the connection."""

    code: CloseCode
    reason: str


_Entry = TypeVar("_Entry", bound=WireEntry)


class ServerConnection(ABC, Generic[_Entry]):
    """One connection, as the server sees it, whatever its protocol.

    Attributes:
        limits: Bounds of the connection.
        phase: Where it is.
        entries: What runs on it, by the ids of the client.
        errors: Counts the errors that the client is told, by their codes; maybe together with those of others.

    Args:
        limits: Bounds of the connection.
        now: The time; any clock that never goes back, in seconds.
    """

    _late: ClassVar[tuple[type, ...]]
    """Messages that are legal only after ``connection_ack``."""
    _free: ClassVar[tuple[type, ...]] = ()
    """Messages that have a bound of their own, and not that of control messages."""

    def __init__(self, limits: Limits, *, now: float) -> None:
        self.limits = limits
        self.phase = ConnectionPhase.OPENED
        self.entries: dict[str, _Entry] = {}
        self.errors: Counter[str] = Counter()
        self._init_by = now + limits.init_timeout
        self._tokens = _BURST * limits.messages_per_second
        self._refilled = now

    # What a protocol adds.

    @abstractmethod
    def _take(self, text: bytes | str, now: float) -> list[Effect]:
        """Reads a message, admits it, and answers what it leads to."""

    @abstractmethod
    def _ack(self) -> bytes:
        """The message ``connection_ack``."""

    @staticmethod
    @abstractmethod
    def _error(name: str, problem: Problem) -> bytes:
        """The message ``error``."""

    @staticmethod
    @abstractmethod
    def _in_use(name: str) -> str:
        """What a client is told that uses an id twice."""

    @property
    @abstractmethod
    def _beat(self) -> float:
        """When an acknowledged connection has something to do; infinite for never."""

    # From the client.

    def receive(self, text: bytes | str, now: float) -> list[Effect]:
        """What one message leads to."""
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
        """Counts a message.

        Raises:
            Violation: 4490, if there are too many.
        """
        self._tokens -= 1
        if self._tokens < 0:
            rate = self.limits.messages_per_second
            raise Violation(
                CloseCode.FLOOD, f"more than {rate} messages a second; request more events at once"
            )

    def _enter(self, name: str, make: Callable[[], tuple[_Entry, Effect]]) -> list[Effect]:
        """Takes an operation up, or tells its client why not; its id is known before it starts."""
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
        """Tells what is wrong, and counts it."""
        self.errors[problem.code] += 1
        return Send(self._error(name, problem))

    def _forget(self, entry: _Entry | None) -> list[Effect]:
        if entry is None or entry.ended:
            return []
        entry.stage = EntryStage.ENDED
        del self.entries[entry.id]
        return [Cancel(entry)]

    # From the server.

    def acknowledge(self) -> list[Effect]:
        """The client may start operations from now on."""
        if self.phase is not ConnectionPhase.GREETED:
            return []
        self.phase = advance(self.phase, PhaseEvent.ACK)
        return [Send(self._ack())]

    def refuse(self, why: str) -> list[Effect]:
        """The client may not connect."""
        return self.close(CloseCode.FORBIDDEN, why)

    # By the time.

    @property
    def due(self) -> float:
        """When there is something to do; infinite for never."""
        if self.phase is ConnectionPhase.CLOSED:
            return math.inf
        if self.phase.early:
            # Who has greeted waits for the server, which has bounds of its own for that.
            return self._init_by if self.phase is ConnectionPhase.OPENED else math.inf
        return self._beat

    def tick(self, now: float) -> list[Effect]:
        """What the passing of time leads to."""
        if self.phase is ConnectionPhase.OPENED and now >= self._init_by:
            waited = f"no connection_init within {self.limits.init_timeout:g} s"
            return self.close(CloseCode.INIT_TIMEOUT, waited)
        return []

    # The end.

    def close(self, code: CloseCode, why: str) -> list[Effect]:
        """Closes the connection, and with it everything that runs on it."""
        if self.phase is ConnectionPhase.CLOSED:
            return []
        return [*self.lost(), Close(code, close_reason(why))]

    def lost(self) -> list[Effect]:
        """The connection is gone."""
        self.phase = advance(self.phase, PhaseEvent.CLOSE)
        effects: list[Effect] = []
        for entry in list(self.entries.values()):
            effects += self._forget(entry)
        return effects
