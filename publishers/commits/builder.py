"""A transaction that collects changes in a ``with`` block and commits them when the block ends."""

import enum
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from publishers.commits.commit_threads import CommitThreads
from publishers.commits.group_commit import Commit
from publishers.commits.label import check_mutations
from publishers.errors import InvalidTransactionState
from publishers.mutations.mutation import Image, Mutation, expire, rekey, remove, schema, truncate, upsert

__all__ = ["TransactionBuilder", "TransactionState"]


class TransactionState(enum.Enum):
    """The life of a transaction; the values are the texts of errors.

    ::

        NEW -> ACTIVE -> COMMITTING -> COMMITTED
                 |           `-------> FAILED
                 |-> COMMITTED          there was nothing to commit
                 `-> ROLLED_BACK
    """

    NEW = "was not entered"
    ACTIVE = "was entered, and not left yet"
    COMMITTING = "is being committed"
    COMMITTED = "has ended already"
    ROLLED_BACK = "was left with an exception, and nothing of it was committed"
    FAILED = "was not acknowledged: committing it raised an error"


_ANOTHER: Final = "begin another one with log.transaction()"


class TransactionBuilder:
    """Collects the changes of one transaction; ``ChangeLog.transaction`` makes it.

    As a context manager it commits when its block ends, and commits nothing if the block raises. ``async with`` commits on
    a thread of the log; cancelling the wait does not undo the commit. It serves one block: adding changes before or after the
    block raises ``InvalidTransactionState``. Without changes, annotations or producer nothing is committed, and no version
    is made.

    Args:
        log: Name of the log.
        write: Commits the changes, such as ``ChangeLog.commit``.
        committing: The keyword arguments of ``write``.
        threads: The threads on which ``async with`` commits.
    """

    __slots__ = ("_commit", "_labelled", "_log", "_mutations", "_state", "_threads", "_write")

    def __init__(
        self, log: str, write: Callable[..., Commit], committing: Mapping[str, Any], threads: CommitThreads
    ) -> None:
        self._state = TransactionState.NEW
        self._log = log
        self._write = partial(write, **committing)
        self._threads = threads
        self._labelled = bool(committing) and any(
            committing.get(name) is not None for name in ("meta", "producer")
        )
        self._mutations: list[Mutation] = []
        self._commit: Commit | None = None

    @property
    def commit(self) -> Commit | None:
        """The outcome of the transaction after its block; None if it was empty, and nothing was committed.

        Raises:
            InvalidTransactionState: If the transaction is not committed.
        """
        if self._state is not TransactionState.COMMITTED:
            waiting = self._state in {TransactionState.NEW, TransactionState.ACTIVE}
            raise self._refusal(
                "it is not committed: leave its with block first"
                if waiting
                else "there is no commit to tell of"
            )
        return self._commit

    def upsert(self, entity_type: str, key: str | bytes, body: Image, **extras: Any) -> None:
        """Adds the creation or change of an entity; arguments and errors are those of ``publishers.upsert``."""
        self._open().append(upsert(entity_type, key, body, **extras))

    def remove(self, entity_type: str, key: str | bytes, **extras: Any) -> None:
        """Adds the removal of an entity; arguments and errors are those of ``publishers.remove``."""
        self._open().append(remove(entity_type, key, **extras))

    def expire(self, entity_type: str, key: str | bytes, **extras: Any) -> None:
        """Adds the end of an entity whose lifetime has run out; arguments and errors are those of ``mutations.expire``."""
        self._open().append(expire(entity_type, key, **extras))

    def truncate(self, entity_type: str, **extras: Any) -> None:
        """Adds the removal of all entities of a type; arguments and errors are those of ``publishers.truncate``."""
        self._open().append(truncate(entity_type, **extras))

    def rekey(
        self,
        entity_type: str,
        old: str | bytes,
        new: str | bytes,
        body: Image,
        **extras: Any,
    ) -> None:
        """Adds the change of an entity's key, which is two changes; arguments and errors are those of ``publishers.rekey``."""
        self._open().append(rekey(entity_type, old, new, body, **extras))

    def schema(self, entity_type: str, body: Image, version: int | None = None, **extras: Any) -> None:
        """Adds the schema of an entity type, before the changes that need it; arguments and errors of ``mutations.schema``."""
        self._open().append(schema(entity_type, body, version, **extras))

    def extend(self, mutations: Iterable[Mutation]) -> None:
        """Adds mutations that were made elsewhere.

        Raises:
            InvalidChange: If the argument is not a collection of mutations; nothing was added then.
            InvalidTransactionState: Outside the block, like all methods that add changes.
        """
        self._open().extend(check_mutations(mutations))

    def __len__(self) -> int:
        return len(self._mutations)

    def __enter__(self) -> Self:
        if self._state is not TransactionState.NEW:
            raise self._refusal(_ANOTHER)
        self._state = TransactionState.ACTIVE
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._leave(failed=kind is not None):
            self._finish()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._leave(failed=kind is not None):
            await self._threads.run(self._finish)

    def __del__(self) -> None:
        if self._state is TransactionState.NEW:
            warnings.warn(
                f"a transaction of log {self._log!r} was never entered, and nothing of it was committed;"
                " fill it in a block: with log.transaction() as tx",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _open(self) -> list[Mutation]:
        """Returns the list of changes; raises outside the block, because nothing would commit them."""
        if self._state is not TransactionState.ACTIVE:
            new = self._state is TransactionState.NEW
            raise self._refusal("add changes in its block: with log.transaction() as tx" if new else _ANOTHER)
        return self._mutations

    def _leave(self, *, failed: bool) -> bool:
        """Ends the block; returns whether there is something to commit."""
        if failed:
            self._state = TransactionState.ROLLED_BACK
        elif self._mutations or self._labelled:
            self._state = TransactionState.COMMITTING
        else:
            self._state = TransactionState.COMMITTED
        return self._state is TransactionState.COMMITTING

    def _finish(self) -> None:
        # Set the outcome here: the caller that awaits it may have been cancelled.
        try:
            self._commit = self._write(self._mutations)
        except BaseException:
            self._state = TransactionState.FAILED
            raise
        self._state = TransactionState.COMMITTED

    def _refusal(self, right: str) -> InvalidTransactionState:
        return InvalidTransactionState(self._log, self._state, right)
