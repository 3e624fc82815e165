"""Schemas on the wire: questions and answers."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from publishers.lossless import flaw_of
from publishers.model.position import Position, PositionToken
from publishers.schemas.registry import SchemaVersion
from transports.codec.fields import whole
from transports.codec.starts import VERSION_MAX
from transports.errors import InvalidRequest

__all__ = ["SchemaAnswer", "SchemaQuestion", "schema_json"]


class SchemaQuestion(msgspec.Struct, frozen=True):
    """A question about a schema, validated.

    Attributes:
        log: The name of the log; None for the only one.
        entity_type: The entity type.
        version: The version of the schema; None for the newest.
    """

    log: str | None
    entity_type: str
    version: int | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "SchemaQuestion":
        """Validates the payload of a question.

        Raises:
            InvalidRequest: If the value of a field is invalid.
        """
        log, entity_type, version = (payload.get(name) for name in ("log", "entity_type", "version"))
        if not isinstance(log, str | None):
            raise InvalidRequest("log", log, "text")
        if not isinstance(entity_type, str) or not entity_type:
            raise InvalidRequest("entity_type", entity_type, "the name of an entity type")
        if version is not None:
            whole("version", version, 1, VERSION_MAX)
        return cls(log, entity_type, version)


class SchemaAnswer(msgspec.Struct):
    """A schema on the wire.

    Attributes:
        log: The name of the log.
        entity_type: The entity type.
        version: The version of the schema.
        told: The cursor from which a subscription begins with the change that recorded the schema.
        parts: The parts of the schema by name.
    """

    log: str
    entity_type: str
    version: int
    told: str
    parts: dict[str, msgspec.Raw]

    def found(self) -> SchemaVersion:
        """Returns the schema as an in-process object."""
        parts = {name: bytes(text) for name, text in self.parts.items()}
        return SchemaVersion(self.entity_type, self.version, PositionToken.parse(self.told).position, parts)


def schema_json(
    log: str, found: SchemaVersion | None, token: Callable[[Position], object]
) -> SchemaAnswer | None:
    """Returns a schema for the wire; omits a part that is not JSON.

    Args:
        log: The name by which the client knows the log.
        found: The schema; None if there is none.
        token: Makes the cursor of a position.
    """
    if found is None:
        return None
    parts = {name: msgspec.Raw(text) for name, text in found.parts.items() if flaw_of(text) is None}
    return SchemaAnswer(log, found.entity_type, found.version, str(token(found.position)), parts)
