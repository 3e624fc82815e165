"""The inputs and the result of ``append``."""

from datetime import datetime
from typing import Any, Final

import msgspec
import strawberry

from publishers.commits.group_commit import Commit
from publishers.commits.submission import Wait
from publishers.errors import InvalidChange
from publishers.model.change import Action, Area, Operation
from publishers.model.fields import ATTACHED
from transports.graphql.types import JSON, Cursor, DateTime, Long, declares, described

__all__ = ["AppendOutcome", "ChangeInput", "KeyInput"]

strawberry.enum(
    Wait,
    name="Wait",
    description="How far a transaction is to be: ACCEPTED has its version, DURABLE survives a crash, VISIBLE is given to subscribers.",
)


@strawberry.input(name="KeyInput", description="An entity.")
class KeyInput:
    """A key in a document or in variables."""

    entity_type: str = described("Its type.")
    key: str = described("Its key.")


_GIVEN: Final = tuple(field for field in ATTACHED if field.given)
_ORDER: Final = (
    *("entity_type", "key", "operation", "area", "body", "before", "changed", "meta"),
    *(field.name for field in _GIVEN),
    *("expires_at", "new_key", "linked", "field", "action"),
)


@strawberry.input(
    name="ChangeInput",
    description="A change to append. JSON keeps what its numbers are in the variables of the request; POST /changes keeps their text.",
)
@declares(_GIVEN, _ORDER, None)
class ChangeInput:
    """A change in a document or in variables."""

    entity_type: str = described("What kind of entity.")
    key: str | None = described("Which one; left out with TRUNCATE.", default=None)
    operation: Operation = described("What happened.", default=Operation.UPSERT)
    area: Area = described("What part of the system it concerns.", default=Area.DATA)
    body: JSON | None = described("The entity after the change.", default=None)
    before: JSON | None = described("The entity before the change.", default=None)
    changed: list[str] | None = described("Names of the fields that changed.", default=None)
    meta: JSON | None = described("Further information about the change, an object.", default=None)
    expires_at: DateTime | None = described("When the entity ends by itself.", default=None)
    new_key: str | None = described(
        "The key that the entity has from now on: its key changes, which is two changes linked to each other.",
        default=None,
    )
    linked: str | None = described(
        "The key of the other half of a key change that comes as two.", default=None
    )
    field: str | None = described("The field that a field-level change is about.", default=None)
    action: Action | None = described("The action on the field.", default=None)

    def plain(self) -> dict[str, Any]:
        """Returns the change in the format of the other transports."""
        arguments: dict[str, Any] = {
            "entity_type": self.entity_type,
            "key": self.key,
            "operation": self._operation,
            "area": self.area.name,
            "body": _raw(self.body),
            "before": _raw(self.before),
            "changed": self.changed,
            "meta": None if self.meta is None else msgspec.json.decode(self.meta),
            **{field.name: getattr(self, field.name) for field in _GIVEN},
            "expires_at": _moment(self.expires_at),
            "new_key": self.new_key,
            "linked": self.linked,
            "field": self.field,
            "action": None if self.action is None else self.action.value,
        }
        return {name: value for name, value in arguments.items() if value is not None}

    @property
    def _operation(self) -> str | None:
        if self.new_key is not None:
            if self.operation is not Operation.UPSERT or self.area is not Area.DATA:
                raise InvalidChange(
                    "newKey", self.new_key, "given with the operation UPSERT, and no other area"
                )
            return "REKEY"
        return self.operation.name if self.area is Area.DATA else None


@strawberry.type(name="Appended", description="What became of a transaction.")
class AppendOutcome:
    """The result of ``append``."""

    version: Long = described("Its version; 0 for a repetition whose version is no longer known.")
    cursor: Cursor | None = described("The place behind it, to expect or to subscribe from.")
    duplicate: bool = described("Whether its producer had committed it before; nothing was written then.")
    changes: int = described("How many changes were written, with the TRANSACTION event.")

    @classmethod
    def of(cls, commit: Commit, cursor: str | None) -> "AppendOutcome":
        """Makes the result from a commit."""
        place = None if cursor is None else Cursor(cursor)
        return cls(
            version=Long(commit.version), cursor=place, duplicate=commit.duplicate, changes=commit.changes
        )


def _raw(value: JSON | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _moment(value: Any) -> datetime | None:
    return value if isinstance(value, datetime) else None
