"""Schemas on the wire."""

from collections.abc import Callable

import msgspec

from publishers.lossless import flaw_of
from publishers.model.position import Position, PositionToken
from publishers.schemas.registry import SchemaVersion

__all__ = ["SchemaAnswer", "schema_json"]


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
