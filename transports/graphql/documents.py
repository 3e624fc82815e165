"""Documents: parsed and validated once per text, within bounds."""

import re
import threading
from collections import OrderedDict
from typing import Any, Final

from graphql import (
    ArgumentNode,
    DocumentNode,
    GraphQLError,
    GraphQLSchema,
    VariableDefinitionNode,
    VariableNode,
    Visitor,
    parse,
    print_ast,
    validate,
    visit,
)

from publishers.errors import TooCostly
from transports.graphql.cost import beyond, check_document, check_text
from transports.graphql.errors import RequestRefused
from transports.limits import Limits

__all__ = ["Document", "Documents", "essence"]

_ERRORS: Final = 20
_OVERHEAD: Final = 2048  # what is kept of any document, or of what is wrong with it
_TOKEN_BYTES: Final = 512  # about what the syntax tree takes for each token, measured
_WORD: Final = re.compile(r"\w+|[^\s\w,]")
_WRONG: Final = "#"  # with it begins the key of what is no document; no essence begins so
_MARK: Final = re.compile(r'#|"""|"')
_BLANK: Final = re.compile(r"[\s,]+")
_LINE_END: Final = re.compile(r"[\r\n]")
_BLOCK_END: Final = re.compile(r'(?<!\\)"""')
_TEXT_END: Final = re.compile(r'(?:[^"\\\r\n]|\\.)*+"')
_TRANSPORT_ONLY: Final = frozenset(
    {"since", "start", "slot", "snapshot", "until", "onGap", "whole", "images", "fields", "mask", "integers"}
)


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
    """The documents of one schema; what was read lately is kept, valid or not. From any thread.

    They are kept by what they say: comments, and white space beyond one blank, make no other document.

    Attributes:
        nbytes: About how much memory the kept documents take.

    Args:
        schema: What they are validated against.
        limits: What one may cost, and how much memory all take.
    """

    def __init__(self, schema: GraphQLSchema, limits: Limits) -> None:
        self._schema = schema
        self._limits = limits
        self._kept: OrderedDict[str, tuple[_Read, int]] = OrderedDict()
        self.nbytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, text: str) -> Document:
        """The document of a text.

        Raises:
            RequestRefused: If it is not valid.
            TooCostly: If it is beyond a limit.
        """
        check_text(text, self._limits)
        content = essence(text)
        found = self._find(content) or self._find(_WRONG + text)
        if found is None:
            found = self._read(text)
            # What is wrong is told with lines and columns, which comments move.
            self._keep(content if isinstance(found, Document) else _WRONG + text, found)
        if not isinstance(found, Document):
            raise found.with_traceback(None)  # it is raised again and again
        return found

    def _find(self, key: str) -> "_Read | None":
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            return kept[0]

    def _keep(self, key: str, found: "_Read") -> None:
        nbytes = len(key) + _OVERHEAD
        nbytes += _TOKEN_BYTES * sum(1 for _ in _WORD.finditer(key)) if isinstance(found, Document) else 0
        with self._lock:
            replaced = self._kept.pop(key, None)  # another thread may have read the same
            self._kept[key] = found, nbytes
            self.nbytes += nbytes - (0 if replaced is None else replaced[1])
            while self.nbytes > self._limits.document_cache_bytes:
                _, (_, freed) = self._kept.popitem(last=False)
                self.nbytes -= freed

    def _read(self, text: str) -> "_Read":
        try:
            node = parse(text, max_tokens=self._limits.document_tokens)
            check_document(node, self._limits)
            errors = validate(self._schema, node, max_errors=_ERRORS)
        except GraphQLError as error:
            if str(error.message).endswith("tokens. Parsing aborted."):
                found, cheaper = self._limits.document_tokens + 1, "pass large values as variables"
                return beyond("document_tokens", found, self._limits, cheaper, "tokens of the document")
            return RequestRefused([error])
        except TooCostly as error:
            return error
        except RecursionError:
            return RequestRefused([GraphQLError("The document is nested too deeply.")])
        return RequestRefused(errors) if errors else Document(node)


_Read = Document | RequestRefused | TooCostly


def essence(text: str) -> str:
    """A document without comments, and with one blank for each run of what separates tokens.

    Each character is looked at a bounded number of times, whatever the text is. What follows a quotation mark without its
    fellow is left as it is: it is no document.
    """
    found: list[str] = []
    code: list[str] = []
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        code.append(text[at : mark.start()])
        if mark[0] == "#":
            ends = _LINE_END.search(text, mark.end())
            at = len(text) if ends is None else ends.start()
            continue
        ends = _BLOCK_END.search(text, mark.end()) if mark[0] == '"""' else _TEXT_END.match(text, mark.end())
        found.append(_BLANK.sub(" ", "".join(code)))
        code.clear()
        if ends is None:
            return "".join(found) + text[mark.start() :]
        found.append(text[mark.start() : ends.end()])
        at = ends.end()
    code.append(text[at:])
    found.append(_BLANK.sub(" ", "".join(code)))
    return "".join(found).strip()
