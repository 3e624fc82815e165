"""The cost of criteria for the server: a weight that is counted before anything is compiled or entered in the index.

One unit stands for about a microsecond of work once, or for one step for each change that leads to the criterion, and for about
130 bytes of memory. Costs are counted twice. ``weigh_json`` uses the lengths in a client's message, before it is parsed.
``weigh`` uses the criteria themselves, before they are compiled; so it knows the places of patterns, repetitions written out.

======================  =====================================================================================
a criterion             24
a name or a key         1, and 1 for each 64 characters; 1 for each place in the index; their number is that
                        of keys (or patterns, or values) times that of entity types
a glob                  2 for each part between its stars; 16 more if no part of it can be looked up
a pattern               4, 1 for each leading literal character, 32 for each place behind them
a condition             2 for an equality, 1 for each value of ``IN``, 8 if each change is tested
a further criterion     8, because each change that leads to the criterion is tested
======================  =====================================================================================
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from publishers.criteria.conditions import Comparison, Where
from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.globs import glob_gram
from publishers.criteria.index_keys import PLACES_MAX
from publishers.criteria.patterns import Pattern

__all__ = ["Cost", "weigh", "weigh_json"]

_CRITERION: Final = 24
_LONG: Final = 64
_PART: Final = 2
_SCAN: Final = 16
_PATTERN: Final = 4
_PLACE: Final = 32
_EQUAL: Final = 2
_ASKED: Final = 8
_LOOKED_UP: Final = frozenset({Comparison.EQ, Comparison.IN})

_CHEAPER: Final = {
    "": "fewer criterions, as one takes many keys and entity types",
    "entity_types": "fewer entity types in one criterion, or a criterion of its own for each with its keys",
    "keys": "fewer keys, a glob such as order-* in their place, or more subscriptions",
    "key_globs": "fewer globs, each with a beginning that tells it from others, such as order-*",
    "key_patterns": "patterns that begin with literal characters and repeat less, or globs",
    "changed": "fewer names of fields",
    "annotations": "fewer conditions on annotations",
    "where": "an equality that tells the criterion from others, and fewer values",
}
_FIELDS: Final = tuple(filter(None, _CHEAPER))
_LEADING: Final = ("keys", "key_globs", "key_patterns", "changed")
_CONDITIONS: Final = ("annotations", "where")


class Cost(NamedTuple):
    """A cost.

    Attributes:
        weight: Its units.
        dearest: The field that contributes most; empty for the number of criterions.
    """

    weight: int
    dearest: str

    @property
    def cheaper(self) -> str:
        """Advice in words on what would cost less."""
        return _CHEAPER[self.dearest]


def weigh(criteria: Criteria) -> Cost:
    """Returns the cost of criteria, in time proportional to their size; compiles nothing."""
    parts = dict.fromkeys(_CHEAPER, 0)
    for criterion in criteria.criterions:
        _weigh(criterion, parts)
    return _cost(parts)


def weigh_json(criteria: object, enough: int) -> Cost:
    """Returns the cost of criteria in wire form, from lengths only; malformed ones are weighed too, and refused later.

    Args:
        criteria: A list of objects as for ``Criteria.from_json``, or of objects with the attributes of a criterion.
        enough: Counting stops above this weight, so that a large message costs little.
    """
    parts = dict.fromkeys(_CHEAPER, 0)
    listed = criteria if isinstance(criteria, list) else ()
    parts[""] = total = _CRITERION * len(listed)
    for criterion in listed:
        for name in _FIELDS:
            values = criterion.get(name) if isinstance(criterion, Mapping) else getattr(criterion, name, None)
            if not isinstance(values, (list, tuple)):
                continue
            if total > enough:
                return _cost(parts)
            size = len(values)
            if total + size <= enough:
                size += sum(map(_size, values)) if name in _CONDITIONS else _characters(name, values)
            parts[name] += size
            total += size
    return _cost(parts)


def _weigh(criterion: Criterion, parts: dict[str, int]) -> None:
    parts[""] += _CRITERION
    for name in ("entity_types", "keys", "changed"):
        if texts := getattr(criterion, name):
            parts[name] += _texts(texts)
    for glob in criterion.key_globs:
        parts["key_globs"] += _PART * (1 + glob.count("*")) + (0 if glob_gram(glob) else _SCAN)
    for text in criterion.key_patterns:
        pattern = Pattern.of(text)
        head = len(pattern.head.decode("utf-8", "surrogateescape"))
        parts["key_patterns"] += _PATTERN + head + _PLACE * (pattern.places - head)
    for name in _CONDITIONS:
        parts[name] += sum(map(_condition, getattr(criterion, name)))
    parts[""] += _ASKED * len(criterion.also)
    leading = ""
    if criterion.keyed or criterion.changed:
        leading = next(name for name in _LEADING if getattr(criterion, name))
    places = len(getattr(criterion, leading)) if leading else max(map(_values, criterion.where), default=1)
    spread = places * max(1, len(criterion.entity_types))
    # Above its bound the index enters a criterion for any entity type, and tests the entity type afterwards.
    parts["entity_types" if len(criterion.entity_types) > 1 else leading] += (
        spread if spread <= PLACES_MAX else places
    )


def _texts(values: Collection[str]) -> int:
    return len(values) + sum(len(value) // _LONG for value in values)


def _condition(condition: Where) -> int:
    asked = _EQUAL if condition.comparison in _LOOKED_UP else _ASKED
    return asked + _values(condition) + len(condition.text) // _LONG


def _values(condition: Where) -> int:
    return len(condition.value) if isinstance(condition.value, tuple) else 1


def _characters(name: str, values: Collection[Any]) -> int:
    """Returns the cost of the texts of a field beside their number; a pattern is parsed character by character."""
    try:
        count = sum(map(len, values))
    except TypeError:
        return 0
    return count if name == "key_patterns" else count // _LONG


def _size(condition: object) -> int:
    """Returns the cost of a condition: the number of values in its list."""
    value = condition.get("value") if isinstance(condition, Mapping) else getattr(condition, "value", None)
    return len(value) if isinstance(value, (list, tuple)) else 0


def _cost(parts: dict[str, int]) -> Cost:
    dearest = max(parts, key=parts.__getitem__)
    return Cost(sum(parts.values()), dearest)
