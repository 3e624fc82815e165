"""The question about a schema."""

from typing import Annotated, ClassVar

import msgspec

from transports.access.grant import LogAction, schema_for
from transports.codec.schemas import SchemaAnswer, schema_json
from transports.codec.starts import VERSION_MAX
from transports.operations.operation import LogOperation, Target

__all__ = ["SchemaLookup"]


class SchemaLookup(LogOperation[SchemaAnswer | None], frozen=True, kw_only=True, rename=None, tag=False):
    """Returns a schema by its version, or the newest; nothing if there is none.

    Attributes:
        entity_type: The entity type.
        version: The version of the schema; None for the newest.
    """

    message: ClassVar[str] = "schema"
    action: ClassVar[LogAction] = LogAction.READ
    entity_type: Annotated[str, msgspec.Meta(min_length=1, description="the name of an entity type")]
    version: Annotated[int, msgspec.Meta(ge=1, le=VERSION_MAX)] | None = None

    def run(self, target: Target, /) -> SchemaAnswer | None:
        """Looks it up, if the grant shows it."""
        name, log, grant = target
        return schema_json(name, schema_for(grant, log, self.entity_type, self.version), log.token)
