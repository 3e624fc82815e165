"""A transaction that is filled in a block, and committed when the block is left."""

import asyncio
import enum
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from publishers.commits.group_commit import Commit
from publishers.commits.label import check_mutations
from publishers.errors import InvalidTransactionState
from publishers.mutations.mutation import Image, Mutation, expire, rekey, remove, schema, truncate, upsert

__all__ = ["TransactionBuilder", "TransactionState"]


class TransactionState(enum.Enum):
    """Where a transaction is in its life; the values are what errors say of it.

    ::

        NEW -> ACTIVE -> COMMITTING -> COMMITTED
                 |           `-------> FAILED
                 |-> COMMITTED          nothing was to be committed
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

    As a context manager it commits on leaving, and nothing on an exception; with ``async with`` it commits off the event
    loop, and cancelling the wait does not undo the commit. It is for one block: what is added before or after that raises
    ``InvalidTransactionState``. Without any change, annotations or producer there is nothing to commit, and no version is made.

    Args:
        log: Name of the log.
        write: Commits the changes, such as ``ChangeLog.commit``.
        committing: Its other arguments, by name.
    """

    __slots__ = ("_commit", "_labelled", "_log", "_mutations", "_state", "_write")

    def __init__(self, log: str, write: Callable[..., Commit], committing: Mapping[str, Any]) -> None:
        self._state = TransactionState.NEW
        self._log = log
        self._write = partial(write, **committing)
        self._labelled = any(committing.get(name) is not None for name in ("meta", "producer"))
        self._mutations: list[Mutation] = []
        self._commit: Commit | None = None

    @property
    def commit(self) -> Commit | None:
        """What became of the transaction, once its block was left; None if it was empty, and nothing was committed.

        Raises:
            InvalidTransactionState: If it was not committed (yet).
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
        """Adds the end of an entity whose time was over; arguments and errors are those of ``publishers.expire``."""
        self._open().append(expire(entity_type, key, **extras))

    def truncate(self, entity_type: str, **extras: Any) -> None:
        """Adds the end of all entities of a type; arguments and errors are those of ``publishers.truncate``."""
        self._open().append(truncate(entity_type, **extras))

    def rekey(
        self,
        entity_type: str,
        old: str | bytes,
        new: str | bytes,
        body: Image,
        **extras: Any,
    ) -> None:
        """Adds the change of an entity's key, which is two changes; as ``publishers.rekey``."""
        self._open().append(rekey(entity_type, old, new, body, **extras))

    def schema(self, entity_type: str, body: Image, version: int | None = None, **extras: Any) -> None:
        """Tells the schema of an entity type, ahead of the changes that need it; as ``publishers.schema``."""
        self._open().append(schema(entity_type, body, version, **extras))

    def extend(self, mutations: Iterable[Mutation]) -> None:
        """Adds changes that were made elsewhere.

        Raises:
            InvalidChange: If it is not several mutations; nothing was added then.
            InvalidTransactionState: Outside of the block, like all methods that add something.
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
            await asyncio.shield(asyncio.to_thread(self._finish))

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
        """What changes are added to; outside of the block there is nothing, as nobody would commit it."""
        if self._state is not TransactionState.ACTIVE:
            new = self._state is TransactionState.NEW
            raise self._refusal("add changes in its block: with log.transaction() as tx" if new else _ANOTHER)
        return self._mutations

    def _leave(self, *, failed: bool) -> bool:
        """Ends the block; whether there is something to commit."""
        if failed:
            self._state = TransactionState.ROLLED_BACK
        elif self._mutations or self._labelled:
            self._state = TransactionState.COMMITTING
        else:
            self._state = TransactionState.COMMITTED
        return self._state is TransactionState.COMMITTING

    def _finish(self) -> None:
        # It notes the outcome itself: whoever waited for it may have been cancelled.
        try:
            self._commit = self._write(self._mutations)
        except BaseException:
            self._state = TransactionState.FAILED
            raise
        self._state = TransactionState.COMMITTED

    def _refusal(self, right: str) -> InvalidTransactionState:
        return InvalidTransactionState(self._log, self._state, right)
