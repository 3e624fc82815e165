"""Inputs of clients: criteria, masks, and start positions."""

import enum
import re
from dataclasses import fields
from datetime import datetime
from typing import Literal
from uuid import UUID

import strawberry

from publishers.criteria.conditions import ABSENT, Comparison, Image, Transition, Where
from publishers.criteria.criteria import Criterion
from publishers.errors import InvalidCriteria
from publishers.model.change import Area, Operation
from publishers.model.position import Position
from publishers.model.position import Start as Word
from transports.codec.starts import start_of
from transports.errors import InvalidRequest
from transports.graphql.types import DateTime, Long, Value, described

__all__ = ["ConditionInput", "CriterionInput", "MaskRuleInput", "OnGap", "RowsMode", "StartInput"]

strawberry.enum(Comparison, name="Comparison", description="How a value is compared.")
strawberry.enum(Image, name="Image", description="Which image of the entity a condition looks at.")
strawberry.enum(
    Transition,
    name="Transition",
    description="The transition of an entity with regard to a filter: ENTERED matches after the change and not before, "
    "LEFT before and not after, STAYED both, MAYBE_LEFT not after and the log does not hold before.",
)


@strawberry.enum(name="MaskRule", description="The replacement of a value.")
class MaskRule(enum.Enum):
    """The rules of a mask."""

    REDACT = "REDACT"
    HASH = "HASH"
    PARTIAL = "PARTIAL"
    DROP = "DROP"


@strawberry.input(name="MaskRuleInput", description="The replacement of the value at a path.")
class MaskRuleInput:
    """One rule of a mask in a document or in variables."""

    path: str = described("Names separated by dots, `$key`, or `$meta` and what is in it.")
    rule: MaskRule = described("The replacement.", default=MaskRule.REDACT)
    text: str | None = described("REDACT: the text that is shown, *** if left out.", default=None)
    key: str | None = described("HASH: the key of the HMAC, at least 16 bytes.", default=None)
    last: int | None = described("PARTIAL: how many characters are shown, 4 if left out.", default=None)

    def plain(self) -> dict[str, str | int]:
        """Returns the rule in the format of the other transports."""
        parts = {"rule": self.rule.value, "text": self.text, "key": self.key, "last": self.last}
        return {name: value for name, value in parts.items() if value is not None}


@strawberry.input(name="Condition", description="A condition on the value of a field.")
class ConditionInput:
    """A condition in a document or in variables."""

    path: str = described("Names of the fields that lead to the value, separated by dots.")
    compare: Comparison = described("How it is compared.")
    value: Value | None = described(
        "The value: for IN a list; for EXISTS and IS_NULL true (the default) or false.",
        default=strawberry.UNSET,
    )
    image: Image = described("Which image of the entity is looked at.", default=Image.AFTER)

    def condition(self, place: str) -> Where:
        """Returns the condition, validated.

        Raises:
            InvalidCriteria: If it is invalid; ``path`` names the place in the terms of the schema.
        """
        value = ABSENT if self.value is strawberry.UNSET else self.value
        try:
            return Where(self.path, self.compare, value, image=self.image)
        except InvalidCriteria as error:
            raise error.at(place) from None


@strawberry.input(
    name="Criterion",
    description="A criterion. All of its fields must hold; an omitted field holds for every change.",
)
class CriterionInput:
    """A criterion in a document or in variables."""

    areas: list[Area] | None = described("Any of these areas.", default=None)
    entity_types: list[str] | None = described("Any of these entity types.", default=None)
    keys: list[str] | None = described("Any of these keys.", default=None)
    key_globs: list[str] | None = described(
        "Any of these globs of keys: * for any characters, ? for one byte.", default=None
    )
    key_patterns: list[str] | None = described(
        "Any of these regular expressions, which the whole key must match.", default=None
    )
    operations: list[Operation] | None = described("Any of these operations.", default=None)
    changed: list[str] | None = described(
        "Any of these fields was changed, and the change says so.", default=None
    )
    where: list[ConditionInput] | None = described("All of these conditions on values hold.", default=None)
    transitions: list[Transition] | None = described(
        "Any of these happens to the entity in the filter that `where` is.", default=None
    )
    annotations: list[ConditionInput] | None = described(
        "All of these conditions on the annotations of the transaction hold.", default=None
    )

    def criterion(self, place: int) -> Criterion:
        """Returns the criterion, validated.

        Raises:
            InvalidCriteria: If values are invalid or contradict each other; ``path`` names the place in the terms of the
                schema.
        """
        conditions = {
            name: [
                condition.condition(f"criteria[{place}].{name}[{number}]")
                for number, condition in enumerate(getattr(self, name) or ())
            ]
            for name in ("where", "annotations")
        }
        try:
            given = {each.name: getattr(self, each.name) or () for each in fields(self)}
            return Criterion(**given | conditions)
        except InvalidCriteria as error:
            path = re.sub("_([a-z])", lambda found: found[1].upper(), error.path)
            raise InvalidCriteria(f"criteria[{place}].{path}", error.value, error.right) from None


@strawberry.enum(name="Place", description="A place that moves: found out when the operation begins.")
class StartPlace(enum.Enum):
    """The symbolic start positions."""

    EARLIEST = "earliest"
    LATEST = "latest"
    STATE = strawberry.enum_value(
        "state",
        description="First the entities that there are, as changes of operation READ, and then every change after them; of a "
        "subscription only.",
    )


@strawberry.enum(name="OnGap", description="What happens where history is no longer kept.")
class OnGap(enum.Enum):
    """The reactions to a gap."""

    FAIL = strawberry.enum_value("fail", description="The operation ends in HISTORY_PRUNED.")
    JUMP = strawberry.enum_value(
        "jump",
        description="The operation continues at the oldest kept position; `extensions.gap` of the next event describes the gap.",
    )


@strawberry.enum(
    name="Snapshot", description="When the entities that there are come, as changes of operation `READ`."
)
class RowsMode(enum.Enum):
    """The times at which rows are delivered."""

    INITIAL = strawberry.enum_value(
        "initial",
        description="First, where it begins with the state, and then every change; and again when they are asked for.",
    )
    INITIAL_ONLY = strawberry.enum_value(
        "initial_only", description="First, and then the operation completes."
    )
    ON_GAP = strawberry.enum_value(
        "on_gap", description="Where history is missing that was still to be read, and then every change."
    )


@strawberry.input(name="Start", description="Where to begin, in one way only; `index` goes with `version`.")
class StartInput:
    """A start position in a document or in variables."""

    place: StartPlace | None = described("The oldest place, or the next version.", default=None)
    version: Long | None = described("The beginning of this version.", default=None)
    index: int | None = described("The change of this index in the version.", default=None)
    time: DateTime | None = described(
        "The first version that was committed then or later; RFC 3339 with an offset.", default=None
    )
    transaction: strawberry.ID | None = described(
        "The transaction whose TRANSACTION event has this id.", default=None
    )

    def plain(self) -> Word | Position | datetime | UUID | Literal["state"]:
        """Returns the start position, validated.

        Raises:
            InvalidRequest: If it is invalid; names the path.
        """
        parts = {
            "version": self.version,
            "index": self.index,
            "time": self.time,
            "transaction": None if self.transaction is None else str(self.transaction),
        }
        given = {name: value for name, value in parts.items() if value is not None}
        if self.place is not None:
            if given:
                raise InvalidRequest("start.place", self.place.name, f"left out where {min(given)} is given")
            return start_of(self.place.value)
        return start_of(given)
