"""What a subscriber is interested in.

A ``Criterion`` is one wish, all fields of which must hold; ``Criteria`` is a set of wishes, any of which may hold.
Both are frozen and normalised: equal wishes in any order are equal objects, which makes them the key under which
subscribers share one publisher.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Self, TypeVar

from publishers.change import Area, Operation
from publishers.errors import InvalidCriteria

__all__ = ["Criteria", "Criterion"]

_Name = TypeVar("_Name", bound=IntEnum)
_FIELDS: Final = ("areas", "entity_types", "keys", "key_globs", "operations")
_VALUES_MAX: Final = 10_000
_GLOB_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One wish. An empty field holds for every change; otherwise any of its values may hold.

    A wish that names entity types or keys excludes TRANSACTION events, which have neither; ask for them with another
    criterion, ``Criterion(areas={Area.INFRASTRUCTURE})``.

    Attributes:
        areas: Areas of the change.
        entity_types: Entity types, exactly.
        keys: Keys, exactly.
        key_globs: Patterns of keys, in which ``*`` stands for any number of characters and ``?`` for one byte.
        operations: Operations of the change.

    Raises:
        InvalidCriteria: If a field has a value that it does not take, or fields contradict each other.
    """

    areas: frozenset[Area] = field(default=frozenset())
    entity_types: frozenset[str] = field(default=frozenset())
    keys: frozenset[str] = field(default=frozenset())
    key_globs: frozenset[str] = field(default=frozenset())
    operations: frozenset[Operation] = field(default=frozenset())

    def __init__(
        self,
        *,
        areas: Collection[Area | str] = (),
        entity_types: Collection[str] = (),
        keys: Collection[str] = (),
        key_globs: Collection[str] = (),
        operations: Collection[Operation | str] = (),
    ) -> None:
        put = object.__setattr__
        put(self, "areas", _enums("areas", areas, Area))
        put(self, "entity_types", _texts("entity_types", entity_types))
        put(self, "keys", _texts("keys", keys))
        put(self, "key_globs", _texts("key_globs", key_globs))
        put(self, "operations", _enums("operations", operations, Operation))
        self._check()

    def _check(self) -> None:
        for glob in self.key_globs:
            if len(glob) > _GLOB_MAX:
                raise InvalidCriteria("key_globs", glob[:40] + "...", f"at most {_GLOB_MAX} characters long")
        sited = next((name for name in ("entity_types", "keys", "key_globs") if getattr(self, name)), None)
        if sited and self.areas == {Area.INFRASTRUCTURE}:
            raise InvalidCriteria(
                sited, sorted(getattr(self, sited)), "left out, because INFRASTRUCTURE has none"
            )
        transaction = self.operations == {Operation.TRANSACTION}
        if transaction and self.areas and Area.INFRASTRUCTURE not in self.areas:
            raise InvalidCriteria(
                "areas", sorted(a.name for a in self.areas), "INFRASTRUCTURE for TRANSACTION events"
            )
        if transaction and sited:
            raise InvalidCriteria(
                sited, sorted(getattr(self, sited)), "left out, because TRANSACTION events have none"
            )

    @property
    def unconditional(self) -> bool:
        """Whether every change fulfils this wish."""
        return not any(getattr(self, name) for name in _FIELDS)

    def to_json(self) -> dict[str, list[str]]:
        """The wish as it travels: field names as here, enumerations by their names, empty fields left out."""
        plain: dict[str, list[str]] = {}
        for name in _FIELDS:
            values = getattr(self, name)
            if values:
                plain[name] = sorted(value.name if isinstance(value, IntEnum) else value for value in values)
        return plain


@dataclass(frozen=True, slots=True)
class Criteria:
    """A set of wishes, any of which may hold. Without any, every change matches."""

    criterions: frozenset[Criterion]

    @classmethod
    def of(cls, *wishes: "Criterion | Criteria | Iterable[Criterion] | None") -> Self:
        """Builds criteria from wishes in any form; None and nothing at all mean everything.

        Raises:
            InvalidCriteria: If something is not a wish.
        """
        found: set[Criterion] = set()
        for wish in wishes:
            if wish is None:
                continue
            if isinstance(wish, Criterion):
                found.add(wish)
            elif isinstance(wish, Criteria):
                found |= wish.criterions
            elif isinstance(wish, Iterable) and not isinstance(wish, (str, bytes, Mapping)):
                for one in wish:
                    if not isinstance(one, Criterion):
                        raise InvalidCriteria("criteria", one, "a Criterion")
                    found.add(one)
            else:
                raise InvalidCriteria("criteria", wish, "a Criterion, several, or None for everything")
        if not found or any(criterion.unconditional for criterion in found):
            found = {Criterion()}
        return cls(frozenset(found))

    @classmethod
    def from_json(cls, wishes: object) -> Self:
        """Reads criteria as they travel: a list of objects, or null for everything.

        Raises:
            InvalidCriteria: If a field is unknown or a value is not one of the field's; ``path`` tells where.
        """
        if wishes is None:
            return cls.of()
        if not isinstance(wishes, list):
            raise InvalidCriteria("criteria", wishes, "a list of objects")
        found = []
        for place, wish in enumerate(wishes):
            if not isinstance(wish, dict):
                raise InvalidCriteria(f"criteria[{place}]", wish, "an object")
            for name, values in wish.items():
                if name not in _FIELDS:
                    raise InvalidCriteria(f"criteria[{place}].{name}", values, "one of " + ", ".join(_FIELDS))
                if not isinstance(values, list):
                    raise InvalidCriteria(f"criteria[{place}].{name}", values, "a list")
            try:
                found.append(Criterion(**wish))
            except InvalidCriteria as error:
                raise error.at(f"criteria[{place}]") from None
        return cls.of(found)

    def to_json(self) -> list[dict[str, list[str]]]:
        """The criteria as they travel, in a stable order; an empty list for everything."""
        return sorted((c.to_json() for c in self.criterions if not c.unconditional), key=repr)

    @property
    def unconditional(self) -> bool:
        """Whether every change matches."""
        return any(criterion.unconditional for criterion in self.criterions)


def _collected(name: str, values: Any) -> frozenset[Any]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Collection):
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


def _enums(name: str, values: Collection[_Name | str], kind: type[_Name]) -> frozenset[_Name]:
    found = set()
    for value in _collected(name, values):
        if isinstance(value, kind):
            found.add(value)
        elif isinstance(value, str) and value in kind.__members__:
            found.add(kind[value])
        else:
            raise InvalidCriteria(name, value, "one of " + ", ".join(kind.__members__))
    return frozenset(found)
