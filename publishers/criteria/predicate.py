"""Selects the changes of a block that fulfil criteria.

Each criterion is compiled into a ``CompiledCriterion``. Area, operation and entity type are tested for many changes at once; keys, patterns,
changed fields and values are tested change by change, cheap tests first.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from publishers.blocks.block import Block
from publishers.blocks.decode import KEYLESS
from publishers.criteria.conditions import ABSENT, Image, Transition, Where, find
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.facts import Facts, facts_of
from publishers.criteria.globs import glob_matcher
from publishers.criteria.patterns import Pattern
from publishers.model.change import Area, Operation

__all__ = ["TRANSACTION_KIND", "Check", "CompiledCriterion", "Predicate", "filter_of"]

TRANSACTION_KIND: Final = Area.INFRASTRUCTURE * 16 + Operation.TRANSACTION

_KINDS: Final = tuple((area, operation, area * 16 + operation) for area in Area for operation in Operation)

Check = Callable[[Facts, int], bool]

_MEMO: Final = 4096


class CompiledCriterion:
    """One compiled criterion.

    Attributes:
        criterion: The criterion.
        kinds: Areas and operations that match, as blocks store them.
        keys: Keys that match; empty if it names none.
        globs: Whether a key matches one of its globs; None without globs.
        patterns: Whether a key matches one of its regular expressions; None without them.
        expressions: These regular expressions, prepared, by text.
        changed: Whether a change touched one of its fields; None if it names none.
        values: Whether the images fulfil its conditions; None without conditions.
        annotated: Whether the annotations of the transaction fulfil its conditions on them; None without such conditions.
        also: Whether a change fulfils one of its further criterions; None without them.
        transactions: Whether TRANSACTION events fulfil it.
    """

    __slots__ = (
        "also",
        "annotated",
        "changed",
        "criterion",
        "expressions",
        "globs",
        "keys",
        "kinds",
        "patterns",
        "transactions",
        "values",
    )

    def __init__(self, criterion: Criterion) -> None:
        self.criterion: Criterion = criterion
        self.kinds: frozenset[int] = _kinds(criterion.areas, criterion.operations)
        if criterion.keyed:
            self.kinds -= {KEYLESS}
        self.keys: frozenset[bytes] = frozenset(
            key.encode("utf-8", "surrogateescape") for key in criterion.keys
        )
        self.globs: Callable[[bytes], bool] | None = _any_of(
            [glob_matcher(glob) for glob in sorted(criterion.key_globs)]
        )
        self.expressions: dict[str, Pattern] = {
            text: Pattern.of(text) for text in sorted(criterion.key_patterns)
        }
        self.patterns: Callable[[bytes], bool] | None = _any_of(
            [pattern.prepare() for pattern in self.expressions.values()]
        )
        self.changed: Check | None = _changed_check(criterion.changed) if criterion.changed else None
        self.values: Check | None = (
            filter_of(criterion.where, criterion.transitions) if criterion.where else None
        )
        self.annotated: Check | None = (
            _annotations_check(criterion.annotations) if criterion.annotations else None
        )
        self.also: Check | None = (
            _also_check([CompiledCriterion(one) for one in criterion.also]) if criterion.also else None
        )
        self.transactions: bool = TRANSACTION_KIND in self.kinds and not criterion.sited

    @property
    def asks(self) -> bool:
        """Whether the criterion tests more than the kind and entity type of a change."""
        return bool(self.keys or self.globs or self.patterns or self.changed or self.values)

    def takes(self, kind: int, entity_type: str) -> bool:
        """Whether changes of a kind and an entity type match, if the criterion tests nothing else."""
        return kind in self.kinds and (
            not self.criterion.entity_types or entity_type in self.criterion.entity_types
        )

    def shows_key(self, entity_type: str, key: bytes) -> bool:
        """Whether changes of an entity match, if the criterion tests nothing but entity types and keys."""
        named = self.criterion.entity_types
        checks = (self.keys.__contains__ if self.keys else None, self.globs, self.patterns)
        return (not named or entity_type in named) and all(
            check(key) for check in checks if check is not None
        )

    def holds(self, facts: Facts, index: int) -> bool:
        """Whether one change, which is not a TRANSACTION event, matches."""
        key = facts.key(index)
        return (
            self.takes(facts.kind(index), facts.entity_type(index) or "")
            and all(
                check(key)
                for check in (self.keys.__contains__ if self.keys else None, self.globs, self.patterns)
                if check is not None
            )
            and all(
                check(facts, index)
                for check in (self.annotated, self.changed, self.values, self.also)
                if check is not None
            )
        )

    def leads(self, block: Block) -> bool:
        """Whether the TRANSACTION event of the block matches."""
        return block.leads and self.transactions and self._passes(block)

    def rows(self, block: Block) -> Collection[int] | None:
        """Returns the stored rows that match; None for all of them."""
        if not self._passes(block):
            return ()
        columns = block.columns
        types = None
        if names := self.criterion.entity_types:
            types = frozenset(number for number, name in enumerate(columns.entity_types) if name in names)
            if not types:
                return ()
        rows: Collection[int] | None = None
        present = block.selection("kinds", lambda b: sorted(frozenset(b.columns.kinds)))
        if not self.kinds.issuperset(present):
            if self.kinds.isdisjoint(present):
                return ()
            kinds = columns.kinds
            rows = [row for row in range(block.count) if kinds[row] in self.kinds]
        if types and len(types) < len(columns.entity_types) and columns.type_ids is not None:
            ids = columns.type_ids
            rows = [row for row in _all(rows, block) if ids[row] in types]
        keys = columns.key
        for holds in (self.keys.__contains__ if self.keys else None, self.globs, self.patterns):
            if holds is not None:
                rows = [row for row in _all(rows, block) if holds(keys[row])]  # type: ignore[arg-type]  # keys are never null
        for check in (self.changed, self.values, self.also):
            if check is not None and (rows is None or rows):
                facts, first = facts_of(block), block.first_index
                rows = [row for row in _all(rows, block) if check(facts, row + first)]
        return rows

    def _passes(self, block: Block) -> bool:
        """Whether the annotations of the transaction match."""
        return self.annotated is None or self.annotated(facts_of(block), 0)


def filter_of(where: Collection[Where], transitions: Collection[Transition]) -> Check:
    """Compiles conditions, all of which must hold, and the transitions of the filter that they form."""
    after = [(one.path, one.test()) for one in sorted(where, key=_text) if one.image is Image.AFTER]
    before = [(one.path, one.test()) for one in sorted(where, key=_text) if one.image is Image.BEFORE]

    def holds(tests: Sequence[tuple[tuple[str, ...], Callable[[object], bool]]], image: object) -> bool:
        if image is ABSENT:
            return False
        return all(test(find(image, path)) for path, test in tests)

    if not transitions:
        if not before:
            return lambda facts, index: holds(after, facts.after(index))
        if not after:
            return lambda facts, index: holds(before, facts.before(index))
        return lambda facts, index: holds(after, facts.after(index)) and holds(before, facts.before(index))
    # Whether the filter held before, and whether it holds after.
    moves = {
        (False, True): Transition.ENTERED in transitions,
        (True, False): Transition.LEFT in transitions,
        (True, True): Transition.STAYED in transitions,
        (False, False): False,
    }
    unknown = Transition.MAYBE_LEFT in transitions

    def moved(facts: Facts, index: int) -> bool:
        before, holds_now = facts.before(index), holds(after, facts.after(index))
        if before is ABSENT and not holds_now:
            return unknown
        return moves[holds(after, before), holds_now]

    return moved


class Predicate:
    """Compiled criteria: selects the matching changes of a block.

    Attributes:
        criteria: The criteria.
        compiled: Their compiled criterions.
    """

    __slots__ = ("_alike", "_broad", "_transactions", "compiled", "criteria")

    def __init__(self, criteria: Criteria) -> None:
        self.criteria: Criteria = criteria
        self.compiled: tuple[CompiledCriterion, ...] = tuple(
            CompiledCriterion(criterion) for criterion in criteria.criterions
        )
        self._broad = not any(one.asks or one.annotated is not None for one in self.compiled)
        self._transactions = any(one.transactions for one in self.compiled)
        # Whether changes of a kind and an entity type match.
        self._alike: dict[tuple[int, str], bool] = {}

    def select(self, block: Block) -> Sequence[int]:
        """Returns the indices of the matching changes, ascending; computed once per block if changes must be examined."""
        columns = block.columns
        kinds = columns.kinds.tobytes()
        if self._broad and columns.type_ids is None and kinds.count(kinds[:1]) == len(kinds):
            alike, first = (kinds[0], columns.entity_types[0]), block.first_index
            matched = self._alike.get(alike)
            if matched is None:
                if len(self._alike) >= _MEMO:
                    self._alike = {}
                matched = self._alike[alike] = any(one.takes(*alike) for one in self.compiled)
            leads = block.leads and self._transactions
            if not matched:
                return [0] if leads else []
            return range(0 if leads else first, first + block.count)
        return block.selection(self.criteria, self._select)

    def _select(self, block: Block) -> Sequence[int]:
        rows: Collection[int] | None = ()
        leads = False
        for one in self.compiled:
            leads = leads or one.leads(block)
            if rows is not None:
                found = one.rows(block)
                rows = None if found is None else {*rows, *found} if rows else found
        first = block.first_index
        if rows is None:
            return block.indices if leads or not block.leads else range(first, first + block.count)
        found = sorted(rows) if isinstance(rows, set) else rows  # a single criterion finds them in order
        head = [0] if leads else []
        return head + [row + first for row in found]


def _kinds(areas: Collection[Area], operations: Collection[Operation]) -> frozenset[int]:
    return frozenset(
        kind
        for area, operation, kind in _KINDS
        if (not areas or area in areas) and (not operations or operation in operations)
    )


def _all(rows: Collection[int] | None, block: Block) -> Collection[int]:
    return range(block.count) if rows is None else rows


def _any_of(matchers: list[Callable[[bytes], bool]]) -> Callable[[bytes], bool] | None:
    if len(matchers) < 2:
        return matchers[0] if matchers else None
    return lambda key: any(matches(key) for matches in matchers)


def _changed_check(names: frozenset[str]) -> Check:
    return lambda facts, index: not names.isdisjoint(facts.changed(index))


def _annotations_check(conditions: frozenset[Where]) -> Check:
    tests = [(one.path, one.test()) for one in sorted(conditions, key=_text)]
    return lambda facts, _: all(test(find(facts.annotations, path)) for path, test in tests)


def _also_check(compiled: Sequence[CompiledCriterion]) -> Check:
    return lambda facts, index: any(one.holds(facts, index) for one in compiled)


def _text(condition: Where) -> str:
    return condition.text
