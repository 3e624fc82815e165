"""Criteria: which changes a subscriber wants.

All fields of a ``Criterion`` must hold; ``Criteria`` is a set of criterions, at least one of which must hold.
Both are frozen and normalised: equal criteria in any order are equal objects, and thus the key by which
subscribers share one publisher.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any, Final, Self, TypeVar

from flow.bridges.iterators import IterablePublisher
from flow.misuse import names_arguments
from publishers.criteria.conditions import Image, Transition, Where, member
from publishers.criteria.patterns import Pattern, PatternError
from publishers.errors import InvalidCriteria
from publishers.model.change import Area, Operation

__all__ = ["CONDITIONS_MAX", "FITTING", "Criteria", "Criterion"]

_Name = TypeVar("_Name", bound=Enum)
_Read = TypeVar("_Read")
_SITED: Final = ("entity_types", "keys", "key_globs", "key_patterns", "changed", "where", "transitions")
FITTING: Final = {
    Area.DATA: frozenset(
        {Operation.UPSERT, Operation.REMOVE, Operation.TRUNCATE, Operation.EXPIRE, Operation.READ}
    ),
    Area.SCHEMA: frozenset({Operation.UPSERT, Operation.REMOVE}),
    Area.INFRASTRUCTURE: frozenset({Operation.TRANSACTION}),
    Area.ENGINE: frozenset({Operation.UPSERT, Operation.REMOVE}),
    Area.HOST: frozenset({Operation.UPSERT, Operation.REMOVE}),
}
"""The operations that exist in each area."""
_VALUES_MAX: Final = 10_000
_PATTERN_MAX: Final = 1024
_PATTERNS_MAX: Final = 100
CONDITIONS_MAX: Final = 64
"""Most conditions of each kind in one criterion."""
_COMPARED_MAX: Final = 64
_PLAIN: Final = (tuple, list, set, frozenset)
_NOTHING: Final[frozenset[Any]] = frozenset()
_Given = tuple[tuple[str, Any, Callable[[str, Any], frozenset[Any]]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One criterion. An empty field holds for every change; else one of its values must match, but all of ``where`` must hold.

    A criterion with entity types, keys, changed fields or conditions excludes TRANSACTION events, which have none of them;
    request them with another criterion, ``Criterion(areas={Area.INFRASTRUCTURE})``. Likewise a criterion with keys excludes
    TRUNCATE, which concerns all keys of an entity type and has no key itself.

    Attributes:
        areas: Areas of the change.
        entity_types: Entity types, exactly.
        keys: Keys, exactly.
        key_globs: Patterns of keys, in which ``*`` stands for any number of characters and ``?`` for one byte.
        key_patterns: Regular expressions that the whole key must match; ``publishers.criteria.patterns`` describes the syntax.
        operations: Operations of the change.
        changed: Names of fields, exactly; the change must say that it touched one of them. A change that does not say what it
            touched does not match. A single name may be passed as a text.
        where: Conditions on the values before and after the change, all of which must hold: ``Where`` objects, or
            expressions for ``Where.parse``. A single condition may be passed without a list.
        transitions: How the change moves its entity in relation to the filter that ``where`` forms.
        annotations: Conditions on the annotations of the transaction, all of which must hold, in the form of ``where``. A
            transaction without annotations has an empty object. They apply to the TRANSACTION event too. Rows of a state
            have no annotations, and fulfil every such condition.
        also: Further criterions, one of which must hold too. It expresses the intersection of two criterions where a single one
            cannot, such as of two lists of globs; it has no wire form. Only for a criterion that asks for keys, changed
            fields or values.

    Raises:
        InvalidCriteria: If a field has an invalid value, or fields contradict each other.
    """

    areas: frozenset[Area] = field(default=frozenset())
    entity_types: frozenset[str] = field(default=frozenset())
    keys: frozenset[str] = field(default=frozenset())
    key_globs: frozenset[str] = field(default=frozenset())
    key_patterns: frozenset[str] = field(default=frozenset())
    operations: frozenset[Operation] = field(default=frozenset())
    changed: frozenset[str] = field(default=frozenset())
    where: frozenset[Where] = field(default=frozenset())
    transitions: frozenset[Transition] = field(default=frozenset())
    annotations: frozenset[Where] = field(default=frozenset())
    also: "frozenset[Criterion]" = field(default=frozenset())

    @names_arguments()
    def __init__(
        self,
        *,
        areas: Collection[Area | str] = (),
        entity_types: Collection[str] = (),
        keys: Collection[str] = (),
        key_globs: Collection[str] = (),
        key_patterns: Collection[str] = (),
        operations: Collection[Operation | str] = (),
        changed: str | Collection[str] = (),
        where: Where | str | Collection[Where | str] = (),
        transitions: Collection[Transition | str] = (),
        annotations: Where | str | Collection[Where | str] = (),
        also: "Collection[Criterion]" = (),
    ) -> None:
        put = object.__setattr__
        given: _Given = (
            ("areas", areas, _areas),
            ("entity_types", entity_types, _texts),
            ("keys", keys, _texts),
            ("key_globs", key_globs, _texts),
            ("key_patterns", key_patterns, _texts),
            ("operations", operations, _operations),
            ("changed", (changed,) if isinstance(changed, str) else changed, _texts),
            ("where", where, _conditions),
            ("transitions", transitions, _transitions),
            ("annotations", annotations, _conditions),
            ("also", also, _collected),
        )
        for name, values, read in given:
            put(self, name, _NOTHING if values == () else read(name, values))
        self._check_patterns()
        self._check_fit()
        self._check_conditions()
        for one in self.also:
            if not isinstance(one, Criterion):
                raise InvalidCriteria("also", also, "a set of Criterion")
        if self.also and not self.asks:
            raise InvalidCriteria(
                "also", also, "left out where a criterion asks for no keys, changed fields or values"
            )

    def _check_patterns(self) -> None:
        for name in ("key_globs", "key_patterns"):
            for pattern in getattr(self, name):
                if len(pattern) > _PATTERN_MAX:
                    raise InvalidCriteria(
                        name, pattern[:40] + "...", f"at most {_PATTERN_MAX} characters long"
                    )
        if len(self.key_patterns) > _PATTERNS_MAX:
            raise InvalidCriteria("key_patterns", len(self.key_patterns), f"at most {_PATTERNS_MAX} values")
        for pattern in sorted(self.key_patterns):
            try:
                Pattern.of(pattern)
            except PatternError as error:
                raise InvalidCriteria("key_patterns", pattern, str(error)) from None

    def _check_fit(self) -> None:
        sited = next((name for name in _SITED if getattr(self, name)), None) if self.sited else None
        if sited and self.areas == {Area.INFRASTRUCTURE}:
            raise InvalidCriteria(
                sited, self._sorted_values(sited), "left out, because INFRASTRUCTURE has none"
            )
        if self.operations == {Operation.TRANSACTION}:
            if self.areas and Area.INFRASTRUCTURE not in self.areas:
                raise InvalidCriteria(
                    "areas", self._sorted_values("areas"), "INFRASTRUCTURE for TRANSACTION events"
                )
            if sited:
                raise InvalidCriteria(
                    sited, self._sorted_values(sited), "left out, because TRANSACTION events have none"
                )
        truncates = self.operations == {Operation.TRUNCATE}
        pointed = next((name for name in _SITED[1:] if getattr(self, name)), None) if truncates else None
        if pointed:
            raise InvalidCriteria(
                pointed, self._sorted_values(pointed), "left out, because TRUNCATE has none"
            )
        if not self.areas or not self.operations:
            return
        fitting = frozenset[Operation]().union(*(FITTING[area] for area in self.areas))
        if not self.operations <= fitting:
            right = ", ".join(sorted(operation.name for operation in fitting))
            areas = ", ".join(self._sorted_values("areas"))
            raise InvalidCriteria(
                "operations", self._sorted_values("operations"), f"some of {right} for {areas}"
            )

    def _check_conditions(self) -> None:
        for name in ("where", "annotations"):
            if (count := len(getattr(self, name))) > CONDITIONS_MAX:
                raise InvalidCriteria(name, f"{count} conditions", f"at most {CONDITIONS_MAX}")
        for condition in self.annotations:
            if condition.image is not Image.AFTER:
                raise InvalidCriteria(
                    "annotations", condition.to_json(), "without an image: annotations have one"
                )
        if self.transitions and not self.where:
            raise InvalidCriteria(
                "transitions", self._sorted_values("transitions"), "left out where there are no conditions"
            )
        for condition in self.where if self.transitions else ():
            if condition.image is not Image.AFTER:
                raise InvalidCriteria(
                    "where", condition.to_json(), "on AFTER: transitions ask both images the same"
                )

    def _sorted_values(self, name: str) -> list[Any]:
        return sorted(map(_plain, getattr(self, name)), key=_order)

    @property
    def unconditional(self) -> bool:
        """Whether every change fulfils this criterion."""
        return not (
            self.areas or self.operations or self.sited or self.annotations or self.also
        )  # in one expression, as each subscription asks

    @property
    def keyed(self) -> bool:
        """Whether only changes with a key can fulfil this criterion."""
        return bool(self.keys or self.key_globs or self.key_patterns)

    @property
    def asks(self) -> bool:
        """Whether the criterion tests more than the area, operation and entity type of a change."""
        return self.keyed or bool(self.changed or self.where)

    @property
    def sited(self) -> bool:
        """Whether TRANSACTION events cannot fulfil this criterion, because it tests fields that they lack."""
        return bool(self.entity_types or self.keyed or self.changed or self.where or self.transitions)

    def implies(self, other: "Criterion") -> bool:
        """Whether every change that fulfils this criterion certainly fulfils the other one."""
        for name in _FIELDS:
            mine, wider = getattr(self, name), getattr(other, name)
            if name == "where" and wider:
                # More conditions make a criterion narrower, but not if they form the filter of its transitions.
                if bool(self.transitions) != bool(other.transitions) or not mine >= wider:
                    return False
                if self.transitions and mine != wider:
                    return False
            elif name == "annotations":
                if not mine >= wider:
                    return False
            elif name == "where":
                continue
            elif wider and not (mine and mine <= wider):
                return False
        return True

    def to_json(self) -> dict[str, list[Any]]:
        """Returns the criterion in its wire form: field names as here, enumerations by name, empty fields left out."""
        return {name: self._sorted_values(name) for name in _FIELDS if getattr(self, name)}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Reads a criterion in its wire form.

        Raises:
            InvalidCriteria: If a field is unknown or has an invalid value; ``path`` is the place of the error.
        """
        if not isinstance(value, Mapping):
            raise InvalidCriteria("", value, "an object")
        found = dict(value)
        for name, values in value.items():
            if name not in _TRAVELLING:
                raise InvalidCriteria(str(name), values, "one of " + ", ".join(_TRAVELLING))
            if not isinstance(values, list) and not (name == "changed" and isinstance(values, str)):
                raise InvalidCriteria(name, values, "a list")
        for name in ("where", "annotations"):
            if name in found:
                found[name] = _each(name, found[name], Where.from_json)
        return cls(**found)


_FIELDS: Final = tuple(one.name for one in fields(Criterion))
_TRAVELLING: Final = tuple(name for name in _FIELDS if name != "also")


@dataclass(frozen=True, slots=True)
class Criteria:
    """A set of criterions, at least one of which must hold. Made by ``of``; an empty set matches nothing."""

    criterions: frozenset[Criterion]

    def __post_init__(self) -> None:
        found: object = self.criterions
        for one in found if isinstance(found, frozenset) else (None,):
            if not isinstance(one, Criterion):
                raise InvalidCriteria("criteria", found, "a frozenset of Criterion; Criteria.of() makes it")

    @classmethod
    def of(cls, *wishes: "Criterion | Criteria | Iterable[Criterion] | None") -> Self:
        """Builds criteria from criterions in any form; None or no argument matches everything.

        A criterion that implies another one is left out, so that more spellings share one publisher.

        Raises:
            InvalidCriteria: If an argument is not a criterion.
        """
        found: set[Criterion] = set()
        for wish in wishes:
            if wish is None:
                continue
            if isinstance(wish, Criterion):
                found.add(wish)
            elif isinstance(wish, Criteria):
                if not wish.criterions and len(wishes) == 1:
                    return cls(frozenset())
                found |= wish.criterions
            elif isinstance(wish, Iterable) and not isinstance(
                wish, (str, bytes, Mapping, IterablePublisher)
            ):
                for one in wish:
                    if not isinstance(one, Criterion):
                        raise InvalidCriteria("criteria", one, "a Criterion")
                    found.add(one)
            else:
                raise InvalidCriteria("criteria", wish, "a Criterion, several, or None for everything")
        if len(found) > _VALUES_MAX:
            raise InvalidCriteria("criteria", f"{len(found)} criterions", f"at most {_VALUES_MAX}")
        for criterion in found:
            if criterion.unconditional:
                found = {_EVERYTHING}
                break
        return cls(frozenset(_widest(found or {_EVERYTHING})))

    @classmethod
    def from_json(cls, wishes: object) -> Self:
        """Reads criteria in their wire form: a list of objects, or null for everything.

        Raises:
            InvalidCriteria: If a field is unknown or has an invalid value; ``path`` is the place of the error.
        """
        if wishes is None:
            return cls.of()
        if not isinstance(wishes, list):
            raise InvalidCriteria("criteria", wishes, "a list of objects")
        return cls.of(_each("criteria", wishes, Criterion.from_json))

    def to_json(self) -> list[dict[str, list[Any]]]:
        """Returns the criteria in their wire form, in a stable order; an empty list for everything."""
        return sorted((c.to_json() for c in self.criterions if not c.unconditional), key=repr)

    def to_stored(self) -> list[dict[str, Any]]:
        """Returns the wire form, for criteria that are kept.

        Raises:
            InvalidCriteria: If a criterion has an ``also``, which has no such form.
        """
        for criterion in self.criterions:
            if criterion.also:
                raise InvalidCriteria("also", criterion.also, "left out of criteria that are stored")
        return self.to_json()

    @property
    def unconditional(self) -> bool:
        """Whether every change matches."""
        return any(criterion.unconditional for criterion in self.criterions)


def _each(name: str, given: Iterable[object], read: Callable[[object], _Read]) -> list[_Read]:
    """Reads each element, and adds its index to the path of an error."""
    found = []
    for place, one in enumerate(given):
        try:
            found.append(read(one))
        except InvalidCriteria as error:
            raise error.at(f"{name}[{place}]") from None
    return found


def _widest(wishes: set[Criterion]) -> set[Criterion]:
    """Returns the criterions that imply no other one; returns all if comparing each pair would be too expensive."""
    if not 1 < len(wishes) <= _COMPARED_MAX:
        return wishes
    return {one for one in wishes if not any(one.implies(other) for other in wishes if other is not one)}


def _plain(value: Any) -> Any:
    if isinstance(value, (Where, Criterion)):
        return value.to_json()
    return value.name if isinstance(value, Enum) else value


def _order(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _collected(name: str, values: Any) -> frozenset[Any]:
    if type(values) not in _PLAIN and (
        isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Collection)
    ):
        raise InvalidCriteria(name, values, "a set or list of values")
    if len(values) > _VALUES_MAX:
        raise InvalidCriteria(name, len(values), f"at most {_VALUES_MAX} values")
    try:
        return frozenset(values)
    except TypeError:
        raise InvalidCriteria(name, values, "a set or list of plain values") from None


def _texts(name: str, values: Collection[str]) -> frozenset[str]:
    found = _collected(name, values)
    for value in found:
        if not isinstance(value, str):
            raise InvalidCriteria(name, value, "text")
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidCriteria(name, value, "text that UTF-8 can hold") from None
    return found


def _conditions(name: str, values: Where | str | Collection[Where | str]) -> frozenset[Where]:
    found = set()
    for value in (values,) if isinstance(values, (Where, str)) else _collected(name, values):
        if isinstance(value, Where):
            found.add(value)
        elif isinstance(value, str):
            try:
                found.add(Where.parse(value))
            except InvalidCriteria as error:
                path = name if error.path == "where" else error.path
                raise InvalidCriteria(path, error.value, error.right) from None
        else:
            raise InvalidCriteria(name, value, "a Where, or an expression")
    return frozenset(found)


def _members(name: str, values: Collection[_Name | str], kind: type[_Name]) -> frozenset[_Name]:
    return frozenset(member(name, value, kind) for value in _collected(name, values))


_areas: Final = partial(_members, kind=Area)
_operations: Final = partial(_members, kind=Operation)
_transitions: Final = partial(_members, kind=Transition)


_EVERYTHING: Final = Criterion()
