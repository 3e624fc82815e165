"""The appends of one connection, as a machine: how many may be unanswered, in which order they are, and what follows a refusal.

They are answered in the order in which they came. A refusal refuses everything behind it, with ``PREDECESSOR_FAILED``, until the
client says in an append that it has all answers (``first``): what was under way when it was refused would else be written
without it, and the log, which knows of each producer the last sequence only, would take its repetition for one of that.
"""

from publishers.errors import PredecessorFailed
from transports.codec.appends import AppendWish
from transports.errors import CloseCode, InvalidRequest, TooManyAppends, Violation
from transports.limits import Limits
from transports.protocol.connection import Effect, Send, WireEntry
from transports.protocol.states import EntryStage

__all__ = ["AppendEntry", "AppendWindow", "Write"]


class AppendEntry(WireEntry):
    """An append that is not answered yet.

    Attributes:
        nbytes: Of its message.
        run: Which run of appends it belongs to: those between two refusals.
        answer: What its client is told, as soon as it is its turn; None while nobody knows.
    """

    __slots__ = ("answer", "nbytes", "run")

    def __init__(self, name: str, nbytes: int, run: int) -> None:
        super().__init__(name, b"")
        self.nbytes = nbytes
        self.run = run
        self.answer: bytes | None = None


class Write(Effect, frozen=True):
    """Read, check and commit what is to be appended, and call ``appended`` or ``append_failed``.

    Those of one connection are committed in the order of these effects, and each behind those of its run before it.
    """

    entry: AppendEntry
    wish: AppendWish
    changes: bytes


class AppendWindow:
    """The unanswered appends of a connection.

    Args:
        limits: Bounds of the connection.

    Attributes:
        nbytes: Of their messages.
    """

    def __init__(self, limits: Limits) -> None:
        self.nbytes = 0
        self._limits = limits
        self._entries: dict[str, AppendEntry] = {}  # in the order in which they came
        self._run = 0
        self._refused = False  # in this run

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, name: str, nbytes: int) -> AppendEntry:
        """Notes that an append has come; it is to be admitted or refused.

        Raises:
            Violation: 4490, if there are far more than there may be.
        """
        if len(self._entries) >= 2 * self._limits.appends:
            most = 2 * self._limits.appends
            raise Violation(CloseCode.FLOOD, f"more than {most} appends are unanswered; wait for the answers")
        entry = AppendEntry(name, nbytes, self._run)
        self._entries[name] = entry
        self.nbytes += nbytes
        return entry

    def admit(self, entry: AppendEntry, wish: AppendWish) -> None:
        """Checks whether an append that was taken may be written.

        Raises:
            InvalidRequest: If it says that all are answered, and they are not.
            PredecessorFailed: If one before it was refused, and it does not say that this is known.
            TooManyAppends: If too much is unanswered.
        """
        limits = self._limits
        alone = len(self._entries) == 1
        if wish.first:
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
        """An append was refused, and with it is everything of its run that comes."""
        if entry.run == self._run:
            self._refused = True
        return self.answer(entry, answer)

    def answer(self, entry: AppendEntry, answer: bytes) -> list[Effect]:
        """What is to be told of an append is known: tells it, and what waited behind it, or waits itself."""
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
        """The connection is gone, and nobody is told of what is under way."""
        entries = list(self._entries.values())
        for entry in entries:
            self._forget(entry)
        return entries

    def _forget(self, entry: AppendEntry) -> None:
        entry.stage = EntryStage.ENDED
        del self._entries[entry.id]
        self.nbytes -= entry.nbytes
