"""What a principal may do with a log, and what it is shown of it.

A grant holds the widest criteria and the widest view that a principal may have. What it asks for is narrowed to that, so a client can leave out
more and mask more, but never less. A client that could ask in which changes a field that it may not see has some value
would learn the value bit by bit; so conditions on such fields are refused.
"""

import enum
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from publishers.criteria.criteria import Criteria
from publishers.criteria.intersection import both
from publishers.criteria.predicate import Wish
from publishers.errors import InvalidOption
from publishers.model.change import Area, Operation
from publishers.schemas.registry import SchemaVersion
from publishers.views.paths import Path, parse_path
from publishers.views.view import Content, Images, View
from transports.errors import Forbidden

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["Grant", "LogAction", "check_rows", "narrow", "schema_for", "schemas_for"]

_WHOLE_AFTER: Final = frozenset({Images.WRITTEN, Images.ALL, Images.AFTER})
_WHOLE_BEFORE: Final = frozenset({Images.WRITTEN, Images.ALL})
_DATA: Final = frozenset({Area.DATA, Area.SCHEMA})
_WITHOUT_ROWS: Final = frozenset({Operation.TRANSACTION, Operation.TRUNCATE})
_APART: Final = View(Content.BODY, apart=True)
_READABLE: Final = "about fields that may be seen here"
_NO_ANNOTATIONS: Final = "left out, because annotations of transactions may not be seen here"


class LogAction(enum.Enum):
    """What a principal may want to do with a log."""

    READ = "READ"
    """Subscribe, ask for history and schemas, and be told the positions of the log."""
    WRITE = "WRITE"
    """Append transactions."""
    OPERATE = "OPERATE"
    """Be told how the log and its subscriptions are doing: statistics and metrics."""
    MANAGE = "MANAGE"
    """Declare, move, switch, try out and drop the sinks of the log."""
    CONSUME = "CONSUME"
    """Make and use the slots and the groups that the grant names: be given what they give, and acknowledge it; move, pause, drop slots."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a principal may do with one log.

    Attributes:
        actions: What it may do; reading alone unless more is said.
        view: The widest view that it may have; None for everything.
        criteria: Which changes it may see at all, whatever it asks for; None for all. Nothing tells of the others but positions:
            changes are shown ``apart``, there are no statistics, and only schemas of entity types that the criteria name. Not
            together with WRITE: what is written is not narrowed; nor with CONSUME or MANAGE, as slots and sinks have their own criteria.
        slots: Which slots it may make, and use, with CONSUME: patterns of their names as in a shell; none unless more is said.
        groups: Which groups it may make, and use, with CONSUME: likewise.

    Raises:
        InvalidOption: If one of them is something else.
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
        told: object = actions
        if not isinstance(told, Collection) or not all(isinstance(one, LogAction) for one in told):
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
        """Whether anything of the log is kept from its readers."""
        return self.view is not None or self.criteria is not None

    def covers(self, other: "Grant", slot: str | None = None) -> bool:
        """Whether a reader, or the consumer of a slot, to whom another grant was given may go on as before under this one."""
        if self.view not in (None, other.view):
            return False
        if slot is not None:
            return self.names_slot(slot)
        if LogAction.READ not in self.actions:
            return False
        if self.criteria is None or self.criteria == other.criteria:
            return True
        return other.criteria is not None and all(
            any(wish.implies(wider) for wider in self.criteria.criterions)
            for wish in other.criteria.criterions
        )

    def check_slot(self, name: str) -> None:
        """Checks whether a slot of a name may be opened, whether there is one or not.

        Raises:
            Forbidden: If not.
        """
        if not self.names_slot(name):
            raise Forbidden("slot.name", "that of a slot that may be opened here")

    def check_group(self, name: str) -> None:
        """Checks whether a group of a name may be used, whether there is one or not: not together with a view.

        Raises:
            Forbidden: If not.
        """
        if not any(fnmatchcase(name, pattern) for pattern in self.groups):
            raise Forbidden("group", "that of a group that may be used here")
        if self.view is not None:
            raise Forbidden("group", "used by those who may see the whole of each change")

    def names_slot(self, slot: str) -> bool:
        """Whether a slot of a name may be had."""
        return any(fnmatchcase(slot, pattern) for pattern in self.slots)

    def shows_type(self, entity_type: str) -> bool:
        """Whether its criteria let schemas of an entity type be seen: they name it, or speak of nothing but areas and operations."""
        if self.criteria is None:
            return True
        return any(
            entity_type in wish.entity_types
            if wish.entity_types
            else not (wish.asks or wish.annotations) and _of_data(wish.areas)
            for wish in self.criteria.criterions
        )


def narrow(grant: Grant, wanted: View, criteria: Criteria) -> tuple[View, Criteria]:
    """What a principal is shown, of which changes, that asks for a view of the changes that fulfil some criteria.

    Raises:
        Forbidden: If the criteria ask about what it may not see.
        InvalidCriteria: If they have too many wishes to be narrowed to those of the grant.
    """
    view = wanted
    if grant.view is not None:
        for criterion in criteria.criterions:
            _check(criterion, grant.view)
        view = wanted.within(grant.view)
    if grant.criteria is None:
        return view, criteria
    if any(wish.annotations for wish in criteria.criterions) and not any(
        Wish(wish).transactions and not wish.annotations for wish in grant.criteria.criterions
    ):
        raise Forbidden("annotations", _NO_ANNOTATIONS)
    return view.within(_APART), both(criteria, grant.criteria)


def check_rows(grant: Grant) -> None:
    """Checks whether a principal may be given the state: rows tell what entities are, and not what has changed.

    Raises:
        Forbidden: If some of the changes that it may see depend on how they came about.
    """
    for wish in () if grant.criteria is None else grant.criteria.criterions:
        given = bool(wish.operations) and Operation.UPSERT not in wish.operations
        if (given or wish.changed or wish.transitions or wish.annotations) and not (
            wish.operations and wish.operations <= _WITHOUT_ROWS
        ):
            raise Forbidden(
                "start", "a place in the log, because only some changes of entities may be seen here"
            )


def schema_for(
    grant: Grant, log: "ChangeLog", entity_type: str, version: int | None = None
) -> SchemaVersion | None:
    """A schema of a log, or None if it was not told, or not for this principal; may read the disk.

    Raises:
        Forbidden: If it may see none.
    """
    _check_schemas(grant)
    return log.schema(entity_type, version) if grant.shows_type(entity_type) else None


def schemas_for(grant: Grant, log: "ChangeLog") -> dict[str, tuple[int, ...]]:
    """Which schemas of a log there are for a principal; may read the disk.

    Raises:
        Forbidden: If it may see none.
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


def _of_data(areas: Collection[Area]) -> bool:
    return not areas or not _DATA.isdisjoint(areas)


def _check_schemas(grant: Grant) -> None:
    """Without a view of whole bodies a principal may see no schemas."""
    widest = grant.view
    if widest is not None and (widest.content is not Content.BODY or widest.images not in _WHOLE_AFTER):
        raise Forbidden("entity_type", "left alone, because schemas may not be seen here")


def _check(criterion: Any, widest: View) -> None:
    # Attributes that a criterion does not have are wishes that nobody can have.
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
    """Whether what lies at a path is shown wholly, and as it is."""
    return all(
        (lens.fields is None or lens.fields.shows(path, wholly=True))
        and (lens.mask is None or not lens.mask.touches(path))
        for lens in view.lenses
    )


def _readings(name: str) -> Iterator[Path]:
    """What the name of a changed field may stand for: a field of that name, and a path."""
    yield (name,)
    try:
        root, path = parse_path("changed", name)
    except ValueError:
        return
    if not root:
        yield path


def _through_lists(path: Iterable[str]) -> Iterator[Path]:
    """What the path of a condition may stand for: a name of digits is a field, or a place in a list."""
    names = tuple(path)
    yield names
    yield tuple(name for name in names if not name.isdigit())
