"""Determines the fields that an operation selects below the field that is being resolved."""

from typing import Any

import strawberry
from graphql import (
    FieldNode,
    FragmentSpreadNode,
    GraphQLIncludeDirective,
    GraphQLResolveInfo,
    GraphQLSkipDirective,
    InlineFragmentNode,
    SelectionNode,
    SelectionSetNode,
    get_directive_values,
)

from transports.graphql.inside import raw_info

__all__ = ["selected"]


def selected(info: strawberry.Info[Any, Any], name: str) -> frozenset[str]:
    """Returns the names of the fields that are selected in a subfield, with fragments and directives resolved.

    Args:
        info: The info of the field that is being resolved.
        name: The name of the subfield.
    """
    raw = raw_info(info)
    found: set[str] = set()
    for node in raw.field_nodes:
        for inner in _fields(raw, node.selection_set, set()):
            if inner.name.value == name:
                found.update(each.name.value for each in _fields(raw, inner.selection_set, set()))
    return frozenset(found)


def _fields(
    raw: GraphQLResolveInfo[Any], where: SelectionSetNode | None, spread: set[str]
) -> list[FieldNode]:
    """Returns the fields of a selection; a fragment that is spread twice is visited once."""
    found: list[FieldNode] = []
    for each in where.selections if where is not None else ():
        if not _included(raw, each):
            continue
        if isinstance(each, FieldNode):
            found.append(each)
        elif isinstance(each, InlineFragmentNode):
            found += _fields(raw, each.selection_set, spread)
        elif isinstance(each, FragmentSpreadNode) and each.name.value not in spread:
            spread.add(each.name.value)
            found += _fields(raw, raw.fragments[each.name.value].selection_set, spread)
    return found


def _included(raw: GraphQLResolveInfo[Any], node: SelectionNode) -> bool:
    """Whether ``@skip`` and ``@include`` keep a selection."""
    skip = get_directive_values(GraphQLSkipDirective, node, raw.variable_values)
    include = get_directive_values(GraphQLIncludeDirective, node, raw.variable_values)
    return not (skip and skip["if"]) and (include is None or bool(include["if"]))
