"""The cost of a request, counted before it is validated or executed.

Each count stops at its bound, so refusing a document costs no more than accepting the largest one. Fields are counted with
fragments spread, because a few fragments that spread each other twice stand for millions of fields. Validation compares all
fields with the same response name in one place pairwise, and all fragments that are spread there
(https://spec.graphql.org/October2021/#sec-Field-Selection-Merging), so these pairs are counted too.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    ValueNode,
)

from publishers.errors import TooCostly
from publishers.options import KIB

__all__ = [
    "DOCUMENT_BYTES",
    "DOCUMENT_TOKENS",
    "beyond",
    "check_document",
    "check_text",
    "check_variables",
    "is_light",
    "values_of",
]

DOCUMENT_BYTES: Final = 128 * KIB
"""Longest document, in characters: large values belong in its variables."""

DOCUMENT_TOKENS: Final = 2_000
"""Most lexical tokens of a document: they are parsed, which takes most of the time before a document is known."""

VARIABLE_VALUES: Final = 20_000
"""Most values in the variables of a request; a text counts once per 64 characters, so a message of `Limits.message_bytes` has room for them."""

DOCUMENT: Final = {"aliases": 32, "depth": 32, "fields": 1_000, "fragments": 64, "pairs": 20_000}
"""The most of each that a document may have: GraphiQL's introspection, the largest document of tools, has 487 fields in 16 levels. Fields and
fragments count wherever they are spread; ``pairs`` are comparisons of fields with the same response name, weighted by their arguments."""
_LIGHT: Final = 200  # tokens, and values of variables, up to which a request is prepared on the event loop
_LIGHT_CHARACTERS: Final = 4096
_TEXT: Final = 64  # characters of a text that count as one value
_TOKEN: Final = re.compile(r'"[^"\n]*"|\w+|[^\s\w,]')


def check_text(text: str) -> None:
    """Checks the length of a document, before it is parsed.

    Raises:
        TooCostly: If the document is too long.
    """
    if len(text) > DOCUMENT_BYTES:
        cheaper = "pass large values as variables"
        raise beyond("document_bytes", len(text), DOCUMENT_BYTES, cheaper, "characters of the document")


def beyond(bound: str, found: int, limit: int, cheaper: str, what: str) -> TooCostly:
    """Returns the error of a request that exceeds a bound."""
    return TooCostly(bound, found, limit, f"to {cheaper}", what=what)


def is_light(text: str, variables: Mapping[str, Any] | None) -> bool:
    """Whether a request is small enough to be prepared on an event loop."""
    return (
        len(text) <= _LIGHT_CHARACTERS
        and sum(1 for _ in _TOKEN.finditer(text)) <= _LIGHT
        and values_of(variables, _LIGHT) <= _LIGHT
    )


def values_of(variables: Mapping[str, Any] | None, most: int) -> int:
    """Counts the values in variables; above ``most`` the count may stop early."""
    found = 0
    waiting: list[Any] = [variables or {}]
    while waiting and found <= most:
        one = waiting.pop()
        found += 1
        if isinstance(one, Mapping):
            found += len(one)  # the names count, because they are compared with those of the schema
            if found <= most:
                waiting += one.values()
        elif isinstance(one, list):
            if found + len(one) > most:
                return found + len(one)
            waiting += one
        elif isinstance(one, str):
            found += len(one) // _TEXT
    return found


def check_variables(variables: Mapping[str, Any] | None) -> None:
    """Checks the number of values in variables, before they are coerced.

    Raises:
        TooCostly: If there are too many values.
    """
    found = values_of(variables, VARIABLE_VALUES)
    if found > VARIABLE_VALUES:
        cheaper = "divide them among several requests"
        raise beyond("variable_values", found, VARIABLE_VALUES, cheaper, "values in the variables")


def check_document(node: DocumentNode) -> None:
    """Checks the cost of a document, before it is validated.

    Raises:
        TooCostly: If the cost exceeds a limit.
    """
    definitions = node.definitions
    fragments = [each for each in definitions if isinstance(each, FragmentDefinitionNode)]
    count = _Count(fragments)
    count.fragments(len(fragments))
    # Validation covers fragments that no operation spreads, too.
    for each in definitions:
        if isinstance(each, OperationDefinitionNode | FragmentDefinitionNode):
            count.walk(each.selection_set, _Place(), 1, frozenset())


class _Place:
    """The fields selected in one place of the answer, by response name."""

    __slots__ = ("count", "inner", "weight")

    def __init__(self) -> None:
        self.count = 0
        self.weight = 0
        self.inner: dict[str, _Place] = {}

    def at(self, name: str) -> "_Place":
        """Returns the place of a response name in this one."""
        place = self.inner.get(name)
        if place is None:
            place = self.inner[name] = _Place()
        return place

    def add(self, weight: int) -> int:
        """Adds a field; returns the cost of comparing it with the fields that are there."""
        pairs = self.count * weight + self.weight
        self.count += 1
        self.weight += weight
        return pairs


class _Count:
    """The running costs of one document."""

    def __init__(self, fragments: list[FragmentDefinitionNode]) -> None:
        self._spread = {each.name.value: each for each in fragments}
        self._fields = self._aliases = self._pairs = 0
        self._weights: dict[int, int] = {}  # by identity of the field node; contains the fields seen so far

    def fragments(self, count: int) -> None:
        """Checks the number of fragments."""
        self._check("fragments", count, "use fewer, or name the fields where they are needed")

    def walk(self, selected: SelectionSetNode, place: _Place, depth: int, within: frozenset[str]) -> None:
        """Counts a selection with fragments spread.

        Args:
            selected: The selection.
            place: Its place in the answer.
            depth: Its nesting depth, from 1.
            within: The fragments that contain it; a cycle ends here, and validation reports it.
        """
        self._check("depth", depth, "select fewer levels")
        for each in selected.selections:
            self._fields += 1
            self._check("fields", self._fields, "select fewer fields, or spread fewer fragments")
            if isinstance(each, FieldNode):
                self._field(each, place, depth, within)
            elif isinstance(each, FragmentSpreadNode):
                self._fragment(each.name.value, place, depth, within)
            elif isinstance(each, InlineFragmentNode):
                self.walk(each.selection_set, place, depth + 1, within)

    def _field(self, node: FieldNode, place: _Place, depth: int, within: frozenset[str]) -> None:
        weight = self._weights.get(id(node))
        if weight is None:
            weight = self._weights[id(node)] = _weight(node)
            self._aliases += node.alias is not None
            self._check("aliases", self._aliases, "ask for the same field less often")
        inner = place.at((node.alias or node.name).value)
        self._compare(inner.add(weight))
        if node.selection_set is not None:
            self.walk(node.selection_set, inner, depth + 1, within)

    def _fragment(self, name: str, place: _Place, depth: int, within: frozenset[str]) -> None:
        found = self._spread.get(name)
        if found is None or name in within:
            return
        # No response name has three dots, so fragments are compared only with each other.
        self._compare(place.at("...").add(len(found.selection_set.selections)))
        self.walk(found.selection_set, place, depth + 1, within | {name})

    def _compare(self, pairs: int) -> None:
        self._pairs += pairs
        self._check("pairs", self._pairs, "select a field once in each place")

    def _check(self, what: str, found: int, cheaper: str) -> None:
        limit = DOCUMENT[what]
        if found > limit:
            raise beyond(f"document_{what}", found, limit, cheaper, f"{_WORDS[what]} of the document")


_WORDS: Final = {
    "aliases": "aliases",
    "depth": "depth",
    "fields": "fields, wherever they are spread,",
    "fragments": "fragments",
    "pairs": "comparisons of fields with one response name",
}


def _weight(node: SelectionNode) -> int:
    """Returns the number of values that a comparison of a field inspects, including the field itself."""
    found = 1
    waiting: list[ValueNode] = [each.value for each in getattr(node, "arguments", None) or ()]
    waiting += [each.value for one in node.directives or () for each in one.arguments or ()]
    while waiting:
        value = waiting.pop()
        found += 1
        if isinstance(value, ListValueNode):
            waiting += value.values
        elif isinstance(value, ObjectValueNode):
            waiting += [each.value for each in value.fields]
    return found
