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
from transports.graphql.cost import DOCUMENT_TOKENS, beyond, check_document, check_text
from transports.graphql.errors import RequestRefused
from transports.limits import DOCUMENT_CACHE_BYTES

__all__ = ["Document", "Documents", "essence"]

_ERRORS: Final = 20
_OVERHEAD: Final = 2048  # bytes kept for any document, or for its error
_TOKEN_BYTES: Final = 512  # approximate bytes of the syntax tree per token, measured
_WORD: Final = re.compile(r"\w+|[^\s\w,]")
_WRONG: Final = "#"  # prefix of the cache key of an invalid document; no essence begins with it
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
        printed: Its text in a normal form: part of the key under which payloads are shared.
        transport_only: Variables that do not change the payload of an event: they determine where the stream begins or ends,
            or the view, which is itself part of the key.
    """

    __slots__ = ("node", "printed", "transport_only")

    def __init__(self, node: DocumentNode) -> None:
        self.node: DocumentNode = node
        self.printed: str = print_ast(node)
        uses = _Uses()
        visit(node, uses)
        self.transport_only: set[str] = uses.transport_only - uses.others


class _Uses(Visitor):
    """Collects the uses of variables."""

    def __init__(self) -> None:
        super().__init__()
        self.transport_only: set[str] = set()
        self.others: set[str] = set()

    def enter_variable_definition(self, node: VariableDefinitionNode, *_: Any) -> Any:
        """Skips a definition, which is not a use."""
        return self.SKIP

    def enter_argument(self, node: ArgumentNode, *_: Any) -> Any:
        """Records a variable that is the whole value of a transport-only argument."""
        if node.name.value in _TRANSPORT_ONLY and isinstance(node.value, VariableNode):
            self.transport_only.add(node.value.name.value)
            return self.SKIP
        return None

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        """Records any other use."""
        self.others.add(node.name.value)


class Documents:
    """The documents of one schema, with a cache of recent ones, valid or not. From any thread.

    The cache key ignores comments and the amount of white space.

    Attributes:
        nbytes: The approximate memory of the cached documents.

    Args:
        schema: The schema for validation.
    """

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._kept: OrderedDict[str, tuple[_Read, int]] = OrderedDict()
        self.nbytes: int = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, text: str) -> Document:
        """Returns the document of a text.

        Raises:
            RequestRefused: If the document is invalid.
            TooCostly: If it exceeds a limit.
        """
        check_text(text)
        content = essence(text)
        found = self._find(content) or self._find(_WRONG + text)
        if found is None:
            found = self._read(text)
            # Errors have lines and columns, which comments shift.
            self._keep(content if isinstance(found, Document) else _WRONG + text, found)
        if not isinstance(found, Document):
            # Without the traceback, which would grow because the same object is raised again and again.
            raise found.with_traceback(None)
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
            replaced = self._kept.pop(key, None)  # another thread may have parsed the same document
            self._kept[key] = found, nbytes
            self.nbytes += nbytes - (0 if replaced is None else replaced[1])
            while self.nbytes > DOCUMENT_CACHE_BYTES:
                _, (_, freed) = self._kept.popitem(last=False)
                self.nbytes -= freed

    def _read(self, text: str) -> "_Read":
        try:
            node = parse(text, max_tokens=DOCUMENT_TOKENS)
            check_document(node)
            errors = validate(self._schema, node, max_errors=_ERRORS)
        except GraphQLError as error:
            if str(error.message).endswith("tokens. Parsing aborted."):
                cheaper, what = "pass large values as variables", "tokens of the document"
                return beyond("document_tokens", DOCUMENT_TOKENS + 1, DOCUMENT_TOKENS, cheaper, what)
            return RequestRefused([error])
        except TooCostly as error:
            return error
        except RecursionError:
            return RequestRefused([GraphQLError("The document is nested too deeply.")])
        return RequestRefused(errors) if errors else Document(node)


_Read = Document | RequestRefused | TooCostly


def essence(text: str) -> str:
    """Returns a document without comments, and with one space for each run of separators.

    Each character is inspected a bounded number of times, for any text. The text behind an unbalanced quotation mark is left
    unchanged: it is not a valid document.
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
