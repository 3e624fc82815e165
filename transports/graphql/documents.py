"""Documents: parsed and validated once per text, within bounds."""

from collections import OrderedDict
from typing import Any, Final

from graphql import (
    ArgumentNode,
    ASTValidationRule,
    DocumentNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    VariableDefinitionNode,
    VariableNode,
    Visitor,
    parse,
    print_ast,
    specified_rules,
    validate,
    visit,
)

from transports.graphql.errors import RequestRefused

__all__ = ["Document", "Documents"]

_KEPT: Final = 256
_KEPT_CHARACTERS: Final = 16 * 1024
_ERRORS: Final = 20
_ALIASES: Final = 32
_TRANSPORT_ONLY: Final = frozenset(
    {"since", "start", "until", "onGap", "whole", "images", "fields", "mask", "integers"}
)


class _AliasLimit(ASTValidationRule):
    """An alias is how one document asks for the same thing many times."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._aliases = 0

    def enter_field(self, node: FieldNode, *_: Any) -> None:
        """Counts."""
        self._aliases += node.alias is not None
        if self._aliases == _ALIASES + 1:
            self.report_error(GraphQLError(f"The document has more than {_ALIASES} aliases.", node))


class Document:
    """A valid document.

    Attributes:
        node: Its syntax tree.
        printed: Its text in one normal form: part of the key under which payloads are shared.
        transport_only: Variables that say only where the stream begins or ends, and so do not change what an event
            looks like; or how events are seen, which the view says that is part of the key too.
    """

    __slots__ = ("node", "printed", "transport_only")

    def __init__(self, node: DocumentNode) -> None:
        self.node = node
        self.printed = print_ast(node)
        uses = _Uses()
        visit(node, uses)
        self.transport_only = uses.transport_only - uses.others


class _Uses(Visitor):
    """For what variables are used."""

    def __init__(self) -> None:
        super().__init__()
        self.transport_only: set[str] = set()
        self.others: set[str] = set()

    def enter_variable_definition(self, node: VariableDefinitionNode, *_: Any) -> Any:
        """A definition is no use."""
        return self.SKIP

    def enter_argument(self, node: ArgumentNode, *_: Any) -> Any:
        """A variable that is the whole value of such an argument."""
        if node.name.value in _TRANSPORT_ONLY and isinstance(node.value, VariableNode):
            self.transport_only.add(node.value.name.value)
            return self.SKIP
        return None

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        """Any other use."""
        self.others.add(node.name.value)


class Documents:
    """The documents of one schema; what was read lately is kept, valid or not.

    Args:
        schema: What they are validated against.
        tokens: Most lexical tokens of a document.
    """

    def __init__(self, schema: GraphQLSchema, tokens: int) -> None:
        self._schema = schema
        self._tokens = tokens
        self._rules = [*specified_rules, _AliasLimit]
        self._kept: OrderedDict[str, Document | list[GraphQLError]] = OrderedDict()

    def read(self, text: str) -> Document:
        """The document of a text.

        Raises:
            RequestRefused: If it is not valid.
        """
        found = self._kept.pop(text, None) or self._read(text)
        if len(text) <= _KEPT_CHARACTERS:
            self._kept[text] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        if isinstance(found, list):
            raise RequestRefused(found)
        return found

    def _read(self, text: str) -> Document | list[GraphQLError]:
        try:
            node = parse(text, max_tokens=self._tokens)
            errors = validate(self._schema, node, self._rules, max_errors=_ERRORS)
        except GraphQLError as error:
            return [error]
        except RecursionError:
            return [GraphQLError("The document is nested too deeply.")]
        return errors or Document(node)
