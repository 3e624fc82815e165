"""Grants: what a principal may do with a log, and what it sees of it.

A grant holds the widest criteria and the widest view of a principal. Each request is narrowed to them, so a client can
exclude and mask more, but never less. A client that could ask in which changes a hidden field has some value would learn the
value bit by bit; so conditions on hidden fields are refused.
"""

import enum
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal

from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.intersection import both
from publishers.criteria.predicate import CompiledCriterion
from publishers.errors import InvalidOption, TooCostly
from publishers.model.change import Area, Operation
from publishers.schemas.registry import SchemaVersion
from publishers.views.paths import Path, parse_path
from publishers.views.view import Content, Images, View
from transports.errors import Forbidden

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = [
    "Grant",
    "LogAction",
    "check_keys",
    "check_rows",
    "narrow",
    "schema_for",
    "schemas_for",
    "wrong_pattern",
]

_WHOLE_AFTER: Final = frozenset({Images.WRITTEN, Images.ALL, Images.AFTER})
_WHOLE_BEFORE: Final = frozenset({Images.WRITTEN, Images.ALL})
_DATA: Final = frozenset({Area.DATA, Area.SCHEMA})
_WITHOUT_ROWS: Final = frozenset({Operation.TRANSACTION, Operation.TRUNCATE})
_APART: Final = View(Content.BODY, apart=True)
_PATTERN: Final = re.compile(r"[a-z0-9_*?\[\]!-]*")
_CLAIM: Final = re.compile(r"\{[^{}]*\}")
_READABLE: Final = "about fields that may be seen here"
_NO_ANNOTATIONS: Final = "left out, because annotations of transactions may not be seen here"


class LogAction(enum.Enum):
    """An action on a log."""

    READ = "READ"
    """Subscribe, query history and schemas, and see the positions of the log."""
    WRITE = "WRITE"
    """Append transactions."""
    OPERATE = "OPERATE"
    """See statistics and metrics of the log and its subscriptions; of a log that is followed, also its slots as stored."""
    MANAGE = "MANAGE"
    """Declare, move, switch, test and drop the sinks of the log."""
    CONSUME = "CONSUME"
    """Create and use the slots and groups that the grant names: consume, acknowledge, move, pause and drop."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a principal may do with one log.

    Attributes:
        actions: The allowed actions; READ by default.
        view: The widest view; None for everything.
        criteria: The changes that the principal may see at all; None for all. Positions aside, nothing reveals the others:
            changes are shown ``apart``, there are no statistics, and only schemas of entity types that the criteria name.
            Cannot be combined with WRITE, because writes are not narrowed, nor with CONSUME or MANAGE, because slots and
            sinks have their own criteria.
        slots: The slots that the principal may create and use with CONSUME: shell patterns of names; none by default.
        groups: The groups that the principal may create and use with CONSUME; likewise.

    Raises:
        InvalidOption: If an argument is invalid or conflicts with another.
    """

    actions: frozenset[LogAction]
    view: View | None = None
    criteria: Criteria | None = None
    slots: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __init__(
        self,
        actions: Collection[LogAction] = (LogAction.READ,),
        view: View | None = None,
        criteria: Criteria | None = None,
        slots: Collection[str] = (),
        groups: Collection[str] = (),
    ) -> None:
        checked: object = actions
        if not isinstance(checked, Collection) or not all(isinstance(one, LogAction) for one in checked):
            raise InvalidOption("actions", actions, "a set of LogAction, such as {LogAction.READ}")
        shown: object = view
        if not isinstance(shown, View | None):
            raise InvalidOption("view", view, "a View, as View.of() makes it, or None")
        which: object = criteria
        if not isinstance(which, Criteria | None):
            raise InvalidOption("criteria", criteria, "Criteria, as Criteria.of() makes it, or None")
        if criteria is not None and LogAction.WRITE in actions:
            right = "left out where actions hold WRITE, as what is written is not narrowed; WRITE needs a grant of its own"
            raise InvalidOption("criteria", criteria, right)
        if criteria is not None and LogAction.CONSUME in actions:
            right = "left out where actions hold CONSUME, as a slot has its own criteria; CONSUME needs a grant of its own"
            raise InvalidOption("criteria", criteria, right)
        if criteria is not None and LogAction.MANAGE in actions:
            right = "left out where actions hold MANAGE, as a sink carries what it is told to; MANAGE needs a grant of its own"
            raise InvalidOption("criteria", criteria, right)
        if view is not None and LogAction.MANAGE in actions:
            raise InvalidOption(
                "view", view, "left out where actions hold MANAGE, as a sink has its own view"
            )
        for name, patterns in (("slots", slots), ("groups", groups)):
            _check_patterns(name, patterns, actions)
        object.__setattr__(self, "slots", tuple(slots))
        object.__setattr__(self, "groups", tuple(groups))
        object.__setattr__(self, "actions", frozenset(actions))
        object.__setattr__(self, "view", view)
        object.__setattr__(self, "criteria", criteria)

    @property
    def narrow(self) -> bool:
        """Whether the grant hides anything of the log from readers."""
        return self.view is not None or self.criteria is not None

    def covers(self, other: "Grant", slot: str | None = None) -> bool:
        """Whether a reader, or the consumer of a slot, that was admitted under ``other`` may continue unchanged under this grant."""
        if self.view not in (None, other.view):
            return False
        if slot is not None:
            return self.names_slot(slot)
        if LogAction.READ not in self.actions:
            return False
        if self.criteria is None or self.criteria == other.criteria:
            return True
        return other.criteria is not None and all(
            any(criterion.implies(wider) for wider in self.criteria.criterions)
            for criterion in other.criteria.criterions
        )

    def check_slot(self, name: str) -> None:
        """Checks whether the grant names a slot, which need not exist.

        Raises:
            Forbidden: If the grant does not name the slot.
        """
        if not self.names_slot(name):
            raise Forbidden("slot.name", "that of a slot that this client may use")

    def check_group(self, name: str) -> None:
        """Checks whether the grant names a group, which need not exist, and has no view, which groups do not support.

        Raises:
            Forbidden: If the grant does not name the group, or has a view.
        """
        if not any(fnmatchcase(name, pattern) for pattern in self.groups):
            raise Forbidden("group", "one that the grant names")
        if self.view is not None:
            raise Forbidden("group", "used by those who may see the whole of each change")

    def check_room(self, log: "ChangeLog", kind: Literal["slots", "groups"]) -> None:
        """Checks whether a log has room for one more slot, or group, of the principal.

        Those that the grant names may be half of what the log may have, unless it names all of them.

        Raises:
            TooCostly: If there are as many already.
        """
        patterns: frozenset[str] = getattr(self, kind)
        if "*" in patterns:
            return
        count = 1 + sum(any(fnmatchcase(one, each) for each in patterns) for one in getattr(log, kind))
        most = -(-log.options.slots // 2)
        if count > most:
            what = f"{kind} that this client may use, of which half of slots may be"
            raise TooCostly("slots", count, most, "to drop those that nobody needs", what=what)

    def names_slot(self, slot: str) -> bool:
        """Whether the grant names a slot."""
        return any(fnmatchcase(slot, pattern) for pattern in self.slots)

    def shows_type(self, entity_type: str) -> bool:
        """Whether schemas of an entity type are visible: the criteria name the type, or select by nothing but areas and operations."""
        if self.criteria is None:
            return True
        return any(
            entity_type in criterion.entity_types
            if criterion.entity_types
            else not (criterion.asks or criterion.annotations) and _of_data(criterion.areas)
            for criterion in self.criteria.criterions
        )


def narrow(grant: Grant, wanted: View, criteria: Criteria) -> tuple[View, Criteria]:
    """Narrows a request to a grant; returns the resulting view and criteria.

    Raises:
        Forbidden: If the criteria ask about what the grant hides.
        InvalidCriteria: If they have too many criterions to be combined with those of the grant.
    """
    view = wanted
    if grant.view is not None:
        for criterion in criteria.criterions:
            _check(criterion, grant.view)
        view = wanted.within(grant.view)
    if grant.criteria is None:
        return view, criteria
    if any(criterion.annotations for criterion in criteria.criterions) and not any(
        CompiledCriterion(criterion).transactions and not criterion.annotations
        for criterion in grant.criteria.criterions
    ):
        raise Forbidden("annotations", _NO_ANNOTATIONS)
    return view.within(_APART), both(criteria, grant.criteria)


def check_rows(grant: Grant) -> None:
    """Checks whether a principal may receive rows, which show what entities are and not how they changed.

    Raises:
        Forbidden: If the criteria of the grant depend on how a change came about.
    """
    for criterion in () if grant.criteria is None else grant.criteria.criterions:
        given = bool(criterion.operations) and Operation.UPSERT not in criterion.operations
        if (given or criterion.changed or criterion.transitions or criterion.annotations) and not (
            criterion.operations and criterion.operations <= _WITHOUT_ROWS
        ):
            raise Forbidden(
                "start", "a place in the log, because only some changes of entities may be seen here"
            )


def check_keys(grant: Grant, keys: Iterable[tuple[str, bytes]]) -> None:
    """Checks whether a principal may see each change of entities and its key, and so may ask whether there was one.

    Args:
        grant: Its grant for READ.
        keys: Pairs of entity type and key.

    Raises:
        Forbidden: If it may not see some change of one of them.
    """
    named = [(name, key) for name, key in keys if key]
    if grant.view is not None:
        _check(Criterion(keys={key.decode("utf-8", "surrogateescape") for _, key in named}), grant.view)
    if grant.criteria is None:
        return
    wide = [CompiledCriterion(one) for one in grant.criteria.criterions if _shows_every_change(one)]
    for name, key in named:
        if not any(one.shows_key(name, key) for one in wide):
            raise Forbidden("expect.keys", "entities whose changes may be seen here")


def _shows_every_change(criterion: Criterion) -> bool:
    """Whether a criterion selects by nothing but entity types and keys."""
    selects = (
        criterion.operations,
        criterion.changed,
        criterion.where,
        criterion.transitions,
        criterion.annotations,
        criterion.also,
    )
    return not any(selects) and (not criterion.areas or Area.DATA in criterion.areas)


def schema_for(
    grant: Grant, log: "ChangeLog", entity_type: str, version: int | None = None
) -> SchemaVersion | None:
    """Returns a schema of a log; None if there is none, or none for this principal. May read the disk.

    Raises:
        Forbidden: If the grant allows no schemas.
    """
    _check_schemas(grant)
    return log.schema(entity_type, version) if grant.shows_type(entity_type) else None


def schemas_for(grant: Grant, log: "ChangeLog") -> dict[str, tuple[int, ...]]:
    """Returns the versions of the schemas that a principal may see, by entity type; may read the disk.

    Raises:
        Forbidden: If the grant allows no schemas.
    """
    _check_schemas(grant)
    return {name: versions for name, versions in log.schemas().items() if grant.shows_type(name)}


def _check_patterns(name: str, patterns: object, actions: Collection[LogAction]) -> None:
    if (
        isinstance(patterns, str)
        or not isinstance(patterns, Collection)
        or not all(isinstance(one, str) for one in patterns)
    ):
        raise InvalidOption(name, patterns, 'patterns of names, such as ["stock-*"]')
    if patterns and LogAction.CONSUME not in actions:
        raise InvalidOption(name, patterns, "left out where actions do not hold CONSUME")


def wrong_pattern(text: str) -> str | None:
    """Returns what would be right if a pattern matches no name of a slot or group: ``"a,b"`` is taken for two patterns, and is one.

    Args:
        text: The pattern; it may contain claims, such as ``{name}``.
    """
    if _PATTERN.fullmatch(_CLAIM.sub("", text)):
        return None
    return f"given as several patterns, as {text!r} is one, which no name matches: names have lowercase letters, digits, _ and - only"


def _of_data(areas: Collection[Area]) -> bool:
    return not areas or not _DATA.isdisjoint(areas)


def _check_schemas(grant: Grant) -> None:
    """Refuses schemas under a view that does not show whole bodies."""
    widest = grant.view
    if widest is not None and (widest.content is not Content.BODY or widest.images not in _WHOLE_AFTER):
        raise Forbidden("entity_type", "left alone, because schemas may not be seen here")


def _check(criterion: Any, widest: View) -> None:
    # An attribute that a criterion does not have restricts nothing.
    def given(*names: str) -> str | None:
        return next((name for name in names if getattr(criterion, name, ())), None)

    asked = given("keys", "key_globs", "key_patterns")
    masks = [lens.mask for lens in widest.lenses if lens.mask is not None]
    if asked and any(mask.touches((), "$key") for mask in masks):
        raise Forbidden(asked, "left out, because keys may not be seen here")
    for condition in getattr(criterion, "annotations", ()):
        if any(mask.touches(path, "$meta") for mask in masks for path in _through_lists(condition.path)):
            raise Forbidden("annotations", _NO_ANNOTATIONS)
    changed = getattr(criterion, "changed", ())
    if changed and widest.images is Images.KEYS_ONLY:
        raise Forbidden("changed", _READABLE)
    for name in changed:
        if not all(_visible(path, widest) for path in _readings(name)):
            raise Forbidden("changed", _READABLE)
    conditions = getattr(criterion, "where", ())
    both = bool(getattr(criterion, "transitions", ()))
    for condition in conditions:
        before = both or condition.image.name == "BEFORE"
        after = both or condition.image.name == "AFTER"
        seen = widest.content is Content.BODY
        seen = seen and (not before or widest.images in _WHOLE_BEFORE)
        seen = seen and (not after or widest.images in _WHOLE_AFTER)
        if not seen or not all(_visible(path, widest) for path in _through_lists(condition.path)):
            raise Forbidden("where", _READABLE)


def _visible(path: Path, view: View) -> bool:
    """Whether the value at a path is shown completely and unmasked."""
    return all(
        (lens.fields is None or lens.fields.shows(path, wholly=True))
        and (lens.mask is None or not lens.mask.touches(path))
        for lens in view.lenses
    )


def _readings(name: str) -> Iterator[Path]:
    """The meanings of the name of a changed field: a field of that name, and a path."""
    yield (name,)
    try:
        root, path = parse_path("changed", name)
    except ValueError:
        return
    if not root:
        yield path


def _through_lists(path: Iterable[str]) -> Iterator[Path]:
    """The meanings of a condition's path: a name of digits is a field, or an index in a list."""
    names = tuple(path)
    yield names
    yield tuple(name for name in names if not name.isdigit())
