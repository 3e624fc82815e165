"""The intersection of two criteria: what a subscriber asks for, within what it is allowed to see.

Criteria hold if one of their criterions does, so both hold where a criterion of each does: the criterions are intersected pair by
pair. A pair becomes one criterion wherever a single one can express it, because the matching index looks up the fields of one
criterion. Where that is impossible, as with two lists of globs, the criterion of one side stays, and each change that leads
to it is also tested against the other side (``Criterion.also``).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import product
from typing import Any, Final, NamedTuple

from publishers.criteria.criteria import CONDITIONS_MAX, FITTING, Criteria, Criterion
from publishers.errors import InvalidCriteria

__all__ = ["both"]

_PAIRS: Final = 256
_BROAD: Final = 1_000


def both(wanted: Criteria, widest: Criteria) -> Criteria:
    """Returns criteria that match exactly the changes that match both arguments; empty if no change can.

    The time is proportional to the number of pairs, up to 256. Beyond that, a criterion that asks for keys, changed fields or
    values stays as it is, and is combined with the other side by ``also``.

    Raises:
        InvalidCriteria: If there are more than 1,000 pairs of criterions that ask for areas, operations and entity types only, or
            a pair has more than 64 conditions on annotations.
    """
    if widest.unconditional or wanted == widest:
        return wanted
    if wanted.unconditional:
        return widest
    met = _Met()
    mine, theirs = wanted.criterions, widest.criterions
    if len(mine) * len(theirs) <= _PAIRS:
        met.meet(product(mine, theirs))
    else:
        broad = [criterion for criterion in mine if not criterion.asks]
        others = [criterion for criterion in theirs if not criterion.asks]
        if len(broad) * len(others) > _BROAD:
            raise InvalidCriteria(
                "criteria", f"{len(mine)} criterions", "fewer criterions, as one takes many entity types"
            )
        met.meet(product(broad, others))
        for criterion in mine:
            if criterion.asks:
                met.put(criterion, theirs)
        for criterion in theirs:
            if criterion.asks and broad:
                met.put(criterion, broad)
    return met.criteria()


class _Meeting(NamedTuple):
    """A criterion that holds wherever two criterions hold, and whether it holds nowhere else."""

    criterion: Criterion
    exact: bool


class _Met:
    """The resulting criterions, each with the criterions one of which must hold too, or None."""

    def __init__(self) -> None:
        self._found: dict[Criterion, set[Criterion] | None] = {}

    def meet(self, pairs: Iterable[tuple[Criterion, Criterion]]) -> None:
        for mine, other in pairs:
            meeting = _meeting(mine, other)
            if meeting is None:
                continue
            if meeting.exact:
                self._found[meeting.criterion] = None
            else:
                self.put(meeting.criterion, (other,))

    def put(self, criterion: Criterion, others: Collection[Criterion]) -> None:
        found = self._found.setdefault(criterion, set())
        if found is not None:
            found.update(others)

    def criteria(self) -> Criteria:
        criterions = set()
        for criterion, others in self._found.items():
            also = criterion.also if others is None else frozenset(others)
            if others is not None and criterion.also:
                also = both(Criteria(criterion.also), Criteria(also)).criterions
                if not also:
                    continue
            criterions.add(criterion if also == criterion.also else replace(criterion, also=also))
        return Criteria.of(criterions) if criterions else Criteria(frozenset())


def _meeting(mine: Criterion, other: Criterion) -> _Meeting | None:
    """Intersects two criterions; None if no change fulfils both."""
    fields: dict[str, Any] = {}
    for name in ("areas", "operations", "entity_types", "keys"):
        one, two = getattr(mine, name), getattr(other, name)
        fields[name] = one & two if one and two else one or two
        if one and two and not fields[name]:
            return None
    fields["annotations"] = mine.annotations | other.annotations
    if len(fields["annotations"]) > CONDITIONS_MAX:
        raise InvalidCriteria(
            "annotations", f"{len(fields['annotations'])} conditions", f"at most {CONDITIONS_MAX}"
        )
    if fields["areas"] and fields["operations"]:
        fields["operations"] &= frozenset().union(*(FITTING[area] for area in fields["areas"]))
        if not fields["operations"]:
            return None
    exact = [_narrower(fields, name, mine, other) for name in ("key_globs", "key_patterns", "changed")]
    exact += [_filters(fields, mine, other), _further(fields, mine, other)]
    try:
        return _Meeting(Criterion(**fields), all(exact))
    except InvalidCriteria:  # a contradiction, such as a key of a TRANSACTION event: no change fulfils both
        return None


def _narrower(fields: dict[str, Any], name: str, mine: Criterion, other: Criterion) -> bool:
    """Chooses the narrower of two lists of alternatives; returns whether it alone expresses both."""
    one, two = getattr(mine, name), getattr(other, name)
    if not one or (two and two.issubset(one)):
        fields[name] = two
        return True
    fields[name] = one
    return not two or one.issubset(two)


def _filters(fields: dict[str, Any], mine: Criterion, other: Criterion) -> bool:
    """Combines the conditions of both, if one criterion can hold them; returns whether it does."""
    from_other = bool(other.where) and not mine.where
    fields["where"] = (other if from_other else mine).where
    fields["transitions"] = (other if from_other else mine).transitions
    if not other.where or from_other or (mine.where, mine.transitions) == (other.where, other.transitions):
        return True
    joined = mine.where | other.where
    if mine.transitions or other.transitions or len(joined) > CONDITIONS_MAX:
        return False
    fields["where"] = joined
    return True


def _further(fields: dict[str, Any], mine: Criterion, other: Criterion) -> bool:
    """Keeps the ``also`` of one side, if the criterion asks; returns whether that expresses both sides."""
    fields["also"] = mine.also if mine.asks else other.also
    return not other.also or not mine.asks or mine.also == other.also
