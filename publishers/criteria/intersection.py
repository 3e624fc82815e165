"""Criteria of which both must hold: what somebody wants of what he may have.

Criteria are wishes of which any may hold, so both hold where a wish of the one and a wish of the other do: each pair is met. A
pair is one wish again wherever that can tell it, since the matching index looks up what one wish asks for. What no single wish
can tell, such as two lists of globs, stays the wish of the one side, and of each change that leads to it is asked whether it
fulfils the other (``Criterion.also``).
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
    """The criteria that exactly the changes fulfil which fulfil two others; nothing if no change can.

    It costs time of the number of pairs up to 256; where there are more, a wish that asks for keys, changed fields or values
    stays as it is and asks for the others afterwards.

    Raises:
        InvalidCriteria: If there are more than 1,000 pairs of wishes that ask for areas, operations and entity types only, or a pair has
            more than 64 conditions on annotations.
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
        broad = [wish for wish in mine if not wish.asks]
        others = [wish for wish in theirs if not wish.asks]
        if len(broad) * len(others) > _BROAD:
            raise InvalidCriteria(
                "criteria", f"{len(mine)} wishes", "fewer wishes, as one takes many entity types"
            )
        met.meet(product(broad, others))
        for wish in mine:
            if wish.asks:
                met.put(wish, theirs)
        for wish in theirs:
            if wish.asks and broad:
                met.put(wish, broad)
    return met.criteria()


class _Meeting(NamedTuple):
    """A wish that holds wherever two do, and whether it holds nowhere else."""

    wish: Criterion
    exact: bool


class _Met:
    """Wishes that were found, each with those of which any must hold too; None for one that needs none."""

    def __init__(self) -> None:
        self._found: dict[Criterion, set[Criterion] | None] = {}

    def meet(self, pairs: Iterable[tuple[Criterion, Criterion]]) -> None:
        for mine, other in pairs:
            meeting = _meeting(mine, other)
            if meeting is None:
                continue
            if meeting.exact:
                self._found[meeting.wish] = None
            else:
                self.put(meeting.wish, (other,))

    def put(self, wish: Criterion, others: Collection[Criterion]) -> None:
        found = self._found.setdefault(wish, set())
        if found is not None:
            found.update(others)

    def criteria(self) -> Criteria:
        wishes = set()
        for wish, others in self._found.items():
            also = wish.also if others is None else frozenset(others)
            if others is not None and wish.also:
                also = both(Criteria(wish.also), Criteria(also)).criterions
                if not also:
                    continue
            wishes.add(wish if also == wish.also else replace(wish, also=also))
        return Criteria.of(wishes) if wishes else Criteria(frozenset())


def _meeting(mine: Criterion, other: Criterion) -> _Meeting | None:
    """What two wishes come to; None if no change fulfils both."""
    told: dict[str, Any] = {}
    for name in ("areas", "operations", "entity_types", "keys"):
        one, two = getattr(mine, name), getattr(other, name)
        told[name] = one & two if one and two else one or two
        if one and two and not told[name]:
            return None
    told["annotations"] = mine.annotations | other.annotations
    if len(told["annotations"]) > CONDITIONS_MAX:
        raise InvalidCriteria(
            "annotations", f"{len(told['annotations'])} conditions", f"at most {CONDITIONS_MAX}"
        )
    if told["areas"] and told["operations"]:
        told["operations"] &= frozenset().union(*(FITTING[area] for area in told["areas"]))
        if not told["operations"]:
            return None
    exact = [_narrower(told, name, mine, other) for name in ("key_globs", "key_patterns", "changed")]
    exact += [_filters(told, mine, other), _further(told, mine, other)]
    try:
        return _Meeting(Criterion(**told), all(exact))
    except (
        InvalidCriteria
    ):  # what contradicts itself, such as a key of a TRANSACTION event, is what no change fulfils
        return None


def _narrower(told: dict[str, Any], name: str, mine: Criterion, other: Criterion) -> bool:
    """Of two lists, any of which may hold, the narrower one; answers whether that is all that both ask."""
    one, two = getattr(mine, name), getattr(other, name)
    if not one or (two and two.issubset(one)):
        told[name] = two
        return True
    told[name] = one
    return not two or one.issubset(two)


def _filters(told: dict[str, Any], mine: Criterion, other: Criterion) -> bool:
    """The conditions of both, if one wish can have them; answers whether it has."""
    from_other = bool(other.where) and not mine.where
    told["where"] = (other if from_other else mine).where
    told["transitions"] = (other if from_other else mine).transitions
    if not other.where or from_other or (mine.where, mine.transitions) == (other.where, other.transitions):
        return True
    joined = mine.where | other.where
    if mine.transitions or other.transitions or len(joined) > CONDITIONS_MAX:
        return False
    told["where"] = joined
    return True


def _further(told: dict[str, Any], mine: Criterion, other: Criterion) -> bool:
    """The further wishes of one side, which a wish has only if it asks; answers whether those are all."""
    told["also"] = mine.also if mine.asks else other.also
    return not other.also or not mine.asks or mine.also == other.also
