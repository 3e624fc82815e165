"""The append window of one connection as a machine: the bound on unanswered appends, their order, and what follows a refusal.

Appends are answered in order of arrival. After a refusal every later append is refused with ``PREDECESSOR_FAILED`` until the
client marks an append with ``first``, which says that it has received all answers. Otherwise appends that were in flight at
the refusal would be written without their predecessor. The log keeps only the last sequence of each producer, so it would
then mistake the repeated predecessor for a duplicate.
"""

from publishers.errors import PredecessorFailed
from transports.codec.appends import AppendRequest
from transports.errors import CloseCode, InvalidRequest, TooManyAppends, Violation
from transports.limits import Limits
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["AppendEntry", "AppendWindow", "Write"]


class AppendEntry(WireEntry):
    """An append that is not answered yet.

    Attributes:
        nbytes: The bytes of its message.
        run: The run of appends that it belongs to; a refusal ends a run.
        answer: The answer, which is sent in the append's turn; None while the outcome is unknown.
    """

    __slots__ = ("answer", "nbytes", "run")

    def __init__(self, name: str, nbytes: int, run: int) -> None:
        super().__init__(name, b"")
        self.nbytes: int = nbytes
        self.run: int = run
        self.answer: bytes | None = None


class Write(Effect, frozen=True):
    """Parse, check and commit an append, then call ``appended`` or ``append_failed``.

    The appends of one connection are committed in the order of these effects, each behind the earlier appends of its run.
    """

    entry: AppendEntry
    request: AppendRequest
    changes: bytes


class AppendWindow:
    """The unanswered appends of a connection.

    Args:
        limits: Bounds of the connection.

    Attributes:
        nbytes: The bytes of their messages.
    """

    def __init__(self, limits: Limits) -> None:
        self.nbytes: int = 0
        self._limits = limits
        self._entries: dict[str, AppendEntry] = {}  # in order of arrival
        self._run = 0
        self._refused = False  # whether an append of this run was refused

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, name: str, nbytes: int) -> AppendEntry:
        """Enters an append that has arrived; the caller then admits or refuses it.

        Raises:
            Violation: 4490, if twice as many appends as allowed are unanswered.
        """
        if len(self._entries) >= 2 * self._limits.appends:
            most = 2 * self._limits.appends
            raise Violation(CloseCode.FLOOD, f"more than {most} appends are unanswered; wait for the answers")
        entry = AppendEntry(name, nbytes, self._run)
        self._entries[name] = entry
        self.nbytes += nbytes
        return entry

    def admit(self, entry: AppendEntry, request: AppendRequest) -> None:
        """Checks whether an entered append may be written.

        Raises:
            InvalidRequest: If ``first`` is set while appends are unanswered.
            PredecessorFailed: If an earlier append was refused and ``first`` is not set.
            TooManyAppends: If too many appends or bytes are unanswered.
        """
        limits = self._limits
        alone = len(self._entries) == 1
        if request.first:
            if not alone:
                raise InvalidRequest("first", True, "left out while appends are unanswered")
            self._run += 1
            entry.run = self._run
            self._refused = False
        if self._refused:
            raise PredecessorFailed
        if len(self._entries) > limits.appends:
            raise TooManyAppends("appends", limits.appends)
        if self.nbytes > limits.append_bytes and not alone:
            raise TooManyAppends("append_bytes", limits.append_bytes)

    def refuse(self, entry: AppendEntry, answer: bytes) -> list[Effect]:
        """Refuses an append and with it the rest of its run."""
        if entry.run == self._run:
            self._refused = True
        return self.answer(entry, answer)

    def answer(self, entry: AppendEntry, answer: bytes) -> list[Effect]:
        """Stores the answer of an append, and returns the answers whose turn has come."""
        if entry.ended:
            return []
        entry.answer = answer
        effects: list[Effect] = []
        for first in list(self._entries.values()):
            if first.answer is None:
                break
            self._forget(first)
            effects.append(Send(first.answer))
        return effects

    def clear(self) -> list[AppendEntry]:
        """Drops all appends without an answer, because the connection is gone. Returns them."""
        entries = list(self._entries.values())
        for entry in entries:
            self._forget(entry)
        return entries

    def _forget(self, entry: AppendEntry) -> None:
        entry.stage = EntryStage.ENDED
        del self._entries[entry.id]
        self.nbytes -= entry.nbytes
