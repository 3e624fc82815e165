"""The appends of a client as a machine that outlives connections: no append is lost or written twice, and all stay in order.

Appends that are unanswered when a connection is lost are sent again on the next one, with the same producer and sequence. An
append that was refused because of a predecessor is sent again behind it, once all appends are answered. A transaction that
does not fit in one message is sent in parts; meanwhile nothing behind it is sent, because it would be written first.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from publishers.errors import TransactionTooLarge
from transports.codec import replies
from transports.codec.messages import encode
from transports.codec.replies import RemoteCommit
from transports.errors import RemoteError
from transports.protocol.client_parts import Upload
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["AppendAnswered", "ClientAppend", "ClientAppends", "ResumeAppends"]

_PREDECESSOR: Final = "PREDECESSOR_FAILED"
_CROWDED: Final = frozenset({"TOO_MANY_APPENDS", "TOO_COSTLY", "TRANSACTION_IDLE"})
_LEAST: Final = 8  # bytes of the smallest change in a message
# The server gives these answers only after its check for duplicates, so they hold for what a lost connection has sent as
# well: nothing was or will be written.
_DEFINITE: Final = frozenset(
    {
        "EXPECTATION_FAILED",
        "INVALID_CHANGE",
        "INVALID_REQUEST",
        "PRODUCER_CONFLICT",
        "TRANSACTION_REMOVED",
        "TRANSACTION_TOO_LARGE",
    }
)


class ClientAppend(WireEntry):
    """A transaction to append, over all connections.

    Attributes:
        payload: The payload of its message.
        nbytes: The bytes of its message, once it was sent.
        large: Whether it is known not to fit in one message.
        maybe: Whether it was sent on a connection that was lost before the answer.
    """

    __slots__ = ("large", "maybe", "nbytes", "payload")

    def __init__(self, name: str, payload: Mapping[str, Any]) -> None:
        super().__init__(name, b"")
        self.payload: Mapping[str, Any] = payload
        self.nbytes: int = 0
        self.large: bool = False
        self.maybe: bool = False

    @property
    def outcome(self) -> str:
        """The outcome to report if no answer ever arrives."""
        return "unknown" if self.maybe else "refused"


class AppendAnswered(Effect, frozen=True):
    """Report the outcome of a transaction; the machine has forgotten it."""

    entry: ClientAppend
    answer: RemoteCommit | Exception


class ResumeAppends(Effect, frozen=True):
    """Call ``resume`` after ``delay`` seconds: the server has no room for more appends."""

    delay: float


class ClientAppends:
    """The appends of a client.

    Args:
        delay: Returns the seconds to wait, given the number of earlier attempts.
    """

    def __init__(self, delay: Callable[[int], float]) -> None:
        self._delay = delay
        self._queue: deque[ClientAppend] = deque()  # not sent on this connection
        self._sent: dict[str, ClientAppend] = {}  # sent and not answered, in order
        self._again: list[ClientAppend] = []  # refused because of a predecessor or for lack of room, in order
        self._uploads = itertools.count(1)
        self._upload: tuple[ClientAppend, Upload] | None = None  # being sent in parts, not committed
        self._bytes = 0
        self._held = True  # whether sending waits until all appends are answered, or for the next connection
        self._ready = self._crowded = False
        self._attempts = 0
        self._limits: Mapping[str, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sent or (self._upload is not None and self._upload[1].name == name)

    def append(self, entry: ClientAppend) -> list[Effect]:
        """Sends an append now, or as soon as there is room."""
        self._queue.append(entry)
        return list(self._flush())

    def began(self, limits: Mapping[str, Any]) -> list[Effect]:
        """Begins a connection: the server has acknowledged it, with these limits."""
        self._limits = limits
        self._ready, self._held, self._crowded = True, False, False
        return list(self._flush())

    def resume(self) -> list[Effect]:
        """Resumes sending after the delay."""
        if not self._ready or not self._crowded:
            return []
        self._held = self._crowded = False
        return list(self._flush())

    def answered(self, reply: replies.AppendedReply) -> list[Effect]:
        """Handles the commit of a transaction."""
        entry = self._take(reply.id)
        if entry is None:
            return []
        self._attempts = 0
        entry.stage = EntryStage.ENDED
        return [AppendAnswered(entry, reply.commit()), *self._settle()]

    def spooled(self, reply: replies.SpooledReply) -> list[Effect]:
        """Handles a report that the server has stored parts of a transaction."""
        if self._upload is None or self._upload[1].name != reply.id:
            return []
        self._upload[1].stored(reply.parts)
        return list(self._flush())

    def refused(self, name: str, error: RemoteError) -> list[Effect]:
        """Handles the refusal of a transaction, because of itself or of a predecessor."""
        if self._upload is not None and self._upload[1].name == name:
            return self._refused_early(self._upload[0], error)
        entry = self._take(name)
        if entry is None:
            return []
        self._held = True
        if error.code in (_PREDECESSOR, "GOING_AWAY") or (error.code in _CROWDED and error.retryable):
            self._again.append(entry)
            self._crowded = self._crowded or error.code != _PREDECESSOR
            self._ready = self._ready and error.code != "GOING_AWAY"
            return self._settle()
        error.outcome = "refused" if error.code in _DEFINITE else entry.outcome
        if error.code in {"LOG_FAILED", "INTERNAL"}:
            error.outcome = str(error.data.get("outcome", "unknown"))
        entry.stage = EntryStage.ENDED
        return [AppendAnswered(entry, error), *self._settle()]

    def _refused_early(self, entry: ClientAppend, error: RemoteError) -> list[Effect]:
        """Handles a refusal before ``commit``, which refuses no other append."""
        self._upload = None
        if error.code == "GOING_AWAY" or (error.code in _CROWDED and error.retryable):
            self._queue.appendleft(entry)
            self._held = self._crowded = True
            self._ready = self._ready and error.code != "GOING_AWAY"
            return self._settle()
        error.outcome = entry.outcome
        entry.stage = EntryStage.ENDED
        return [AppendAnswered(entry, error), *self._settle()]

    def lost(self) -> None:
        """Queues all unanswered appends again, because the connection is gone."""
        for entry in self._sent.values():
            entry.maybe = True
        uploading = [] if self._upload is None else [self._upload[0]]
        self._queue.extendleft(reversed([*self._again, *self._sent.values(), *uploading]))
        self._upload = None
        self._again.clear()
        self._sent.clear()
        self._bytes = 0
        self._ready = False

    def give_up(self) -> list[ClientAppend]:
        """Ends and returns all unanswered appends, because no connection will follow."""
        self.lost()
        entries = list(self._queue)
        self._queue.clear()
        for entry in entries:
            entry.stage = EntryStage.ENDED
        return entries

    def _take(self, name: str) -> ClientAppend | None:
        entry = self._sent.pop(name, None)
        if entry is not None:
            self._bytes -= entry.nbytes
        return entry

    def _settle(self) -> list[Effect]:
        """Resumes sending if it was held back and all appends are answered."""
        if not self._held:
            return list(self._flush())
        if self._sent:
            return []
        effects: list[Effect] = []
        # The upload is behind the refused appends, so it starts over.
        if self._again and self._upload is not None:
            entry, upload = self._upload
            self._upload = None
            self._queue.appendleft(entry)
            effects += [Send(upload.abort())] if self._ready else []
        self._queue.extendleft(reversed(self._again))
        self._again.clear()
        if not self._crowded:
            self._held = False
            return [*effects, *self._flush()]
        if not self._ready:
            return effects
        self._attempts += 1
        return [*effects, ResumeAppends(self._delay(self._attempts - 1))]

    def _flush(self) -> Iterator[Effect]:
        yield from self._flow()
        most, room = int(self._limits.get("appends", 1)), int(self._limits.get("appendBytes", 0))
        largest = int(self._limits.get("messageBytes", 2**63))
        while self._ready and not self._held and self._queue and len(self._sent) < most and not self._upload:
            entry = self._queue[0]
            # A transaction that obviously does not fit is not encoded just to measure it.
            entry.large = entry.large or _LEAST * len(entry.payload["changes"]) > largest
            data = b"" if entry.large else self._message("append", entry.id, entry.payload)
            if entry.large or len(data) > largest:
                entry.large = True
                self._queue.popleft()
                nbytes = len(data) or _LEAST * len(entry.payload["changes"])
                yield from self._begin(entry, nbytes, largest, room)
                continue
            if self._sent and self._bytes + len(data) > room:
                return
            self._queue.popleft()
            yield self._send(entry, entry.id, data)

    def _message(self, kind: str, name: str, payload: Mapping[str, Any]) -> bytes:
        first = {} if self._sent else {"first": True}
        return encode({"type": kind, "id": name, "payload": {**payload, **first}})

    def _send(self, entry: ClientAppend, name: str, data: bytes) -> Effect:
        """Sends a message that takes a place in the window."""
        entry.nbytes = len(data)
        self._bytes += len(data)
        self._sent[name] = entry
        return Send(data)

    def _begin(self, entry: ClientAppend, nbytes: int, largest: int, room: int) -> Iterator[Effect]:
        """Starts a transaction that does not fit in one message, if the server accepts parts."""
        payload = {name: value for name, value in entry.payload.items() if name != "changes"}
        # A new name each time, so that a late answer is not mistaken for a new one.
        name = f"{entry.id}.{next(self._uploads)}"
        data = encode({"type": "begin", "id": name, "payload": payload})
        if "transactions" not in self._limits or len(data) > largest:
            size = max(nbytes, len(data))
            error = TransactionTooLarge("messageBytes", size, largest, _LARGE % (size, largest))
            yield self._answer(entry, error)
            return
        self._upload = entry, Upload(name, entry.payload["changes"], largest, room)
        yield Send(data)
        yield from self._flow()

    def _flow(self) -> Iterator[Effect]:
        """Sends parts as far as there is room, and the commit behind the last part, in its turn."""
        if self._upload is None or not self._ready:
            return
        entry, upload = self._upload
        try:
            for data in upload.flow():
                yield Send(data)
        except TransactionTooLarge as error:
            self._upload = None
            yield Send(upload.abort())
            yield self._answer(entry, error)
            return
        if upload.complete and not self._held and len(self._sent) < int(self._limits.get("appends", 1)):
            self._upload = None
            yield self._send(entry, upload.name, self._message("commit", upload.name, {}))

    @staticmethod
    def _answer(entry: ClientAppend, error: TransactionTooLarge) -> Effect:
        entry.stage = EntryStage.ENDED
        return AppendAnswered(entry, error)


_LARGE: Final = "the transaction has at least %d bytes as a message, but the server takes %d; commit less at once, or send it to POST /changes"
