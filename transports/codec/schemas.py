"""Schemas on the wire: what is asked, and what is answered."""

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
    """Which schema is meant, checked.

    Attributes:
        log: Name of the log, or None for the only one.
        entity_type: Of which entities.
        version: Its version, or None for the newest.
    """

    log: str | None
    entity_type: str
    version: int | None = None

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "SchemaQuestion":
        """Checks what a client asks.

        Raises:
            InvalidRequest: If a field has a value that it does not take.
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
    """A schema as it travels.

    Attributes:
        log: Name of the log.
        entity_type: Of which entities.
        version: Its version.
        told: The cursor from which on a subscription begins with the change that told it.
        parts: Its parts by name.
    """

    log: str
    entity_type: str
    version: int
    told: str
    parts: dict[str, msgspec.Raw]

    def found(self) -> SchemaVersion:
        """The schema as it is in process."""
        parts = {name: bytes(text) for name, text in self.parts.items()}
        return SchemaVersion(self.entity_type, self.version, PositionToken.parse(self.told).position, parts)


def schema_json(
    log: str, found: SchemaVersion | None, token: Callable[[Position], object]
) -> SchemaAnswer | None:
    """A schema as it travels; a part that is no JSON is left out.

    Args:
        log: What the client knows the log by.
        found: The schema, or None if it was not told.
        token: Makes the cursor of a position.
    """
    if found is None:
        return None
    parts = {name: msgspec.Raw(text) for name, text in found.parts.items() if flaw_of(text) is None}
    return SchemaAnswer(log, found.entity_type, found.version, str(token(found.position)), parts)
