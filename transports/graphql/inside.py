"""The parts of strawberry that have no public name; nothing else uses any.

``pyproject.toml`` bounds the versions of strawberry, and a test looks whether these parts are there.
"""

from typing import Any

import strawberry
from graphql import GraphQLResolveInfo, GraphQLSchema

__all__ = ["executable", "raw_info"]


def executable(schema: strawberry.Schema) -> GraphQLSchema:
    """Returns the schema of graphql-core that a schema wraps."""
    return schema._schema  # noqa: SLF001 - see above


def raw_info(info: strawberry.Info[Any, Any]) -> GraphQLResolveInfo[Any]:
    """Returns the info of graphql-core, whose directives are not resolved yet."""
    return info._raw_info  # noqa: SLF001 - see above
