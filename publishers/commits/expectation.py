"""A writer's expectation of a log, judged at the turn of its commit: that nothing was committed since the writer looked.

The log is scanned before the turn comes. At the turn only later commits, and the earlier members of the same group, are
scanned.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from publishers.blocks.block import Block
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.predicate import Predicate
from publishers.errors import (
    ExpectationFailed,
    HistoryPruned,
    InvalidOption,
    LogFailed,
    PenstockError,
    PositionError,
)
from publishers.model.change import Area, Operation
from publishers.model.position import Position, PositionToken
from publishers.mutations.arguments import key_bytes
from publishers.schemas.stamping import unsealed
from publishers.wal import Reader, Transaction, Wal

__all__ = [
    "EXPECTED_KEYS",
    "FRAME_COST",
    "Expect",
    "Expectation",
    "Expected",
    "ExpectedKeys",
    "GroupAhead",
    "LateExpect",
    "Refusal",
    "expected",
]

EXPECTED_KEYS: Final = 1_000
"""Most keys that the expectation of one commit may name."""
FRAME_COST: Final = 1_024
"""Bytes that one frame costs to scan beside its own, for a budget of scanned bytes."""

Key = tuple[str, str | bytes]
Expect = str | PositionToken | tuple[str | PositionToken, Collection[Key]]
"""A position behind which nothing may have been committed; or a position and keys (pairs of entity type and key) that may not have changed."""
LateExpect = Callable[[], "Expect | Expected | None"]
"""Returns the expectation once all changes of a transaction were read; None for none."""

_DATA: Final = frozenset(range(Area.DATA * 16, Area.DATA * 16 + 16))
_RIGHT: Final = (
    "a token of this log, such as log.token(log.head), or a pair of one and keys: (token, [('order', '42')])"
)
_KEYS_RIGHT: Final = f"1 to {EXPECTED_KEYS} pairs of an entity type and a key: [('order', '42')]"


class Refusal(NamedTuple):
    """Why a transaction may not be written.

    Attributes:
        error: The error for its writer.
        ahead: Index of the conflicting transaction among the earlier ones of the same group; None if the conflict was
            written before.
    """

    error: PenstockError
    ahead: int | None


class ExpectedKeys:
    """Keys that an expectation names.

    Attributes:
        pairs: Entity type and key as stored; the empty key stands for changes that concern all entities of a type.

    Args:
        keys: Pairs of entity type and key.

    Raises:
        InvalidOption: If there are no keys or too many, or a pair is malformed.
    """

    __slots__ = ("_criterions", "_predicate", "pairs")

    def __init__(self, keys: Iterable[Key]) -> None:
        given = list(keys)
        if not 0 < len(given) <= EXPECTED_KEYS:
            raise InvalidOption("expect", f"{len(given)} keys", _KEYS_RIGHT)
        by_type: dict[str, set[str]] = {}
        for pair in given:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise InvalidOption("expect", pair, _KEYS_RIGHT)
            entity_type, key = pair
            text = key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key
            if not (isinstance(entity_type, str) and entity_type and isinstance(text, str) and text):
                raise InvalidOption("expect", pair, _KEYS_RIGHT)
            by_type.setdefault(entity_type, set()).add(text)
        self.pairs: set[tuple[str, bytes]] = {
            (name, key_bytes(text)) for name, texts in by_type.items() for text in texts
        }
        self.pairs |= {(name, b"") for name in by_type}
        criterions = [
            Criterion(areas={Area.DATA}, entity_types={name}, keys=texts) for name, texts in by_type.items()
        ]
        # A TRUNCATE concerns every key of its entity type, and has no key itself.
        criterions.append(
            Criterion(areas={Area.DATA}, entity_types=set(by_type), operations={Operation.TRUNCATE})
        )
        self._criterions = criterions
        self._predicate: Predicate | None = None  # what is refused before a block is read needs none

    def touched(self, block: Block, since: Position) -> tuple[Position, str, str | None] | None:
        """Returns the first change at or behind a position that concerns the keys: its position, entity type and key."""
        if self._predicate is None:
            self._predicate = Predicate(Criteria.of(*self._criterions))
        for index in self._predicate.select(block):
            if (block.version, index) >= since:
                return Position(block.version, index), block.entity_type(index) or "", _text(block.key(index))
        return None


class GroupAhead:
    """The transactions before a commit in its group; their changes are read at the first expectation that names keys.

    Args:
        transactions: The members of the group so far.
    """

    __slots__ = ("_looked", "_spooled", "_touched", "transactions")

    def __init__(self, transactions: Iterable[Transaction]) -> None:
        self.transactions: list[Transaction] = list(transactions)
        self._looked = 0
        self._spooled: int | None = None
        # The first transaction, and the index in it.
        self._touched: dict[tuple[str, bytes], tuple[int, int]] = {}

    def meets(self, keys: ExpectedKeys, place: Position, written: int) -> Refusal | None:
        """Returns why a transaction that expects unchanged keys may not be written behind the group; None if it may."""
        head = Position(written + 1 + len(self.transactions))
        self._look()
        if self._spooled is not None:
            why = "a transaction too large for memory is committed at the same time"
            return Refusal(ExpectationFailed(place, head, untold=why), self._spooled)
        for pair in keys.pairs & self._touched.keys():
            number, index = self._touched[pair]
            at = Position(written + 1 + number, index)
            return Refusal(ExpectationFailed(place, head, at, pair[0], _text(pair[1])), number)
        return None

    def _look(self) -> None:
        for number in range(self._looked, len(self.transactions)):
            transaction = self.transactions[number]
            if transaction.spool is not None:
                self._spooled = number if self._spooled is None else self._spooled
                continue
            index = 0
            for columns in unsealed(transaction):
                names, types = columns.entity_types, columns.type_ids
                for row, (kind, key) in enumerate(zip(columns.kinds, columns.key, strict=True)):
                    index += 1
                    if kind in _DATA:
                        pair = names[0 if types is None else types[row]], key or b""
                        self._touched.setdefault(pair, (number, index))
        self._looked = len(self.transactions)


class Expected(NamedTuple):
    """A parsed expectation; accepted wherever an ``Expect`` is.

    Attributes:
        token: The position.
        keys: The keys that it names, or None.
        spend: Called with 0 before anything is read for the keys, and before each frame that is scanned with the bytes that this
            costs; it may raise a ``PenstockError``, which refuses the commit. None for no budget.
    """

    token: PositionToken
    keys: ExpectedKeys | None
    spend: Callable[[int], None] | None = None


def expected(expect: Expect | Expected) -> Expected:
    """Parses an expectation.

    Raises:
        InvalidOption: If it is neither a token nor a pair of a token and keys.
        PositionMalformed: If a text is not a token.
    """
    if isinstance(expect, Expected):
        return expect
    token, keys = expect, None
    if isinstance(expect, (tuple, list)) and not isinstance(expect, PositionToken) and len(expect) == 2:
        token, given = expect
        _check_several(given)
        keys = ExpectedKeys(given)
    if isinstance(token, str):
        return Expected(PositionToken.parse(token), keys)
    if not isinstance(token, PositionToken):
        raise InvalidOption("expect", expect, _RIGHT)
    return Expected(token, keys)


class Expectation:
    """The expectation of one commit. Used by one thread at a time.

    Args:
        expect: See ``Expect``.
        judge: Returns the position of a token, and checks that it belongs to this log and is not above its second argument.
        wal: The log; `judge_turn` requires its write gate.
        most: Most bytes of the log to scan for keys: option ``expect_bytes``.
        futile: Whether the commit is known not to be written, because its predecessor was refused; None without one.

    Raises:
        InvalidOption, PositionMalformed: As `expected`.
    """

    __slots__ = (
        "_futile",
        "_judge",
        "_keys",
        "_left",
        "_met",
        "_most",
        "_next",
        "_spend",
        "_token",
        "_untold",
        "_wal",
    )

    def __init__(
        self,
        expect: Expect | Expected,
        judge: Callable[[PositionToken, Position], Position],
        wal: Wal,
        most: int,
        futile: Callable[[], bool] | None = None,
    ) -> None:
        self._token, self._keys, self._spend = expected(expect)
        self._judge = judge
        self._wal = wal
        self._futile = futile
        self._most = self._left = most
        self._next: Position | None = None  # no conflict up to here
        self._met: tuple[Position, str, str | None] | None = None
        self._untold: str | None = None

    def look(self) -> None:
        """Scans the log before the turn, so that little is left to scan at the turn; may read the disk.

        It stops before what is withheld: that may be truncated meanwhile, and other commits may take its versions.

        A conflict, or an invalid token, is reported at the turn only: by then it is known whether the commit repeats one that
        was accepted. Nothing is scanned for a commit that will not be written, because its predecessor was refused.

        Raises:
            PenstockError: That of the budget.
        """
        futile, self._futile = self._futile, None
        if self._keys is not None and not (futile is not None and futile()):
            with contextlib.suppress(PositionError):
                place = self._judge(self._token, Position(self._wal.appended + 1))
                self._look_through(self._wal.reader, self._keys, place, self._wal.durable)

    def judge_turn(self, ahead: GroupAhead) -> Refusal | None:
        """Returns why the commit may not be written; None if it may. Only the leader calls it.

        Args:
            ahead: The transactions that are written before it in the same group.

        Raises:
            LogFailed: If earlier transactions could not be synced, which scanning them requires.
        """
        written = self._wal.appended
        head = Position(written + 1 + len(ahead.transactions))
        try:
            place = self._judge(self._token, head)
            if place.version >= head.version:
                return None
            if self._keys is None:
                met = place.version - written - 1
                return Refusal(ExpectationFailed(place, head), met if met >= 0 else None)
            return self._judge_keys(self._keys, place, head, ahead)
        except LogFailed:
            raise
        except PenstockError as error:
            return Refusal(error.with_traceback(None), None)

    def _judge_keys(
        self, keys: ExpectedKeys, place: Position, head: Position, ahead: GroupAhead
    ) -> Refusal | None:
        wal = self._wal
        if place.version <= wal.appended and self._met is None and self._untold is None:
            if wal.durable < wal.appended:
                wal.sync()  # only durable frames can be read
            self._look_through(wal.whole, keys, place, wal.appended)
        if self._untold is not None:
            return Refusal(ExpectationFailed(place, head, untold=self._untold), None)
        if self._met is not None:
            return Refusal(ExpectationFailed(place, head, *self._met), None)
        return ahead.meets(keys, place, wal.appended)

    def _look_through(self, reader: Reader, keys: ExpectedKeys, place: Position, upto: int) -> None:
        start = self._next or place
        if start.version > upto:
            return
        spend, frame = self._spend, None
        if spend is not None:
            spend(0)  # a writer that has nothing left costs no read
        try:
            location = reader.locate(*start)
            while (frame := reader.read(location)) is not None and frame.header.version <= upto:
                self._left -= frame.header.length
                if self._left < 0:
                    self._untold = f"more than {self._most} bytes (expect_bytes) were committed since"
                    return
                if spend is not None:
                    spend(frame.header.length + FRAME_COST)
                self._met = keys.touched(Block.of(frame.header, *frame.decoded), place)
                if self._met is not None:
                    return
                location = frame.next
                self._next = Position(frame.header.version + 1)
        except HistoryPruned as error:
            self._untold = f"the history before {error.oldest} is no longer kept"
        finally:
            del reader, frame  # the traceback of an error keeps what else is here


def _check_several(keys: object) -> None:
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Collection):
        raise InvalidOption("expect", keys, _KEYS_RIGHT)


def _text(key: bytes | None) -> str | None:
    return key.decode("utf-8", "surrogateescape") if key else None
