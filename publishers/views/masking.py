"""Masks: rules that replace values a subscriber may not see."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from publishers.errors import InvalidOption
from publishers.views.paths import Fields, Path, collected, fields_of, items_of, parse_path, path_text, write

__all__ = ["Drop", "Hash", "Mask", "Partial", "Redact", "Rule"]

_KEY_BYTES: Final = 16
_LAST_MAX: Final = 64
_STARS: Final = "***"


class Redact(msgspec.Struct, frozen=True, tag="REDACT", tag_field="rule", forbid_unknown_fields=True):
    """Replaces the value, whatever it is, null included, by one text."""

    text: str = _STARS

    def replace(self, _text: bytes) -> bytes:
        """Returns the text as JSON."""
        return _string(self.text)


class Hash(msgspec.Struct, frozen=True, tag="HASH", tag_field="rule", forbid_unknown_fields=True):
    """Replaces the value by its HMAC-SHA256 in hexadecimal digits, so that equal values can still be recognised as equal.

    A text is hashed as its UTF-8, every other value as its JSON without spaces and with sorted names.

    Attributes:
        key: Secret key of at least 16 bytes; without one, values could be guessed and compared. It is in no ``repr``.
    """

    key: str

    def __repr__(self) -> str:
        return "Hash(key=...)"

    def replace(self, text: bytes) -> bytes:
        """Returns the hash of a value."""
        return _string(hmac.new(self.key.encode(), _essence(text), hashlib.sha256).hexdigest())


class Partial(msgspec.Struct, frozen=True, tag="PARTIAL", tag_field="rule", forbid_unknown_fields=True):
    """Shows the last characters of a text or a number, if at least as many are hidden; else nothing.

    Attributes:
        last: Number of characters to show, from 1 to 64.
    """

    last: int = 4

    def replace(self, text: bytes) -> bytes:
        """Returns the end of a value; three stars stand for the rest, whatever its length."""
        if text[:1] not in b'"-0123456789':
            return _string(_STARS)
        plain = json.loads(text) if text[:1] == b'"' else text.decode()
        return _string(_STARS + (plain[-self.last :] if len(plain) >= 2 * self.last else ""))


class Drop(msgspec.Struct, frozen=True, tag="DROP", tag_field="rule", forbid_unknown_fields=True):
    """Leaves the field out, together with its name."""

    def replace(self, _text: bytes) -> None:
        """Returns None, because the value is left out."""


Rule = Redact | Hash | Partial | Drop


def _string(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=True).encode()


def _essence(text: bytes) -> bytes:
    """Returns the bytes to hash; they are equal for equal values."""
    value = json.loads(text, parse_int=_Number, parse_float=_Number)
    if isinstance(value, str) and not isinstance(value, _Number):
        return value.encode("utf-8", "surrogatepass")
    return _compact(value).encode("utf-8", "surrogatepass")


class _Number(str):
    """A number in its written form."""

    __slots__ = ()


def _compact(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_compact(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value)


class _Node:
    """A name on a path: the rule for its value, and the names below it."""

    __slots__ = ("children", "drops", "rule")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.rule: Rule | None = None
        self.drops = False


@dataclass(frozen=True, slots=True)
class Mask:
    """Rules for paths of an entity, for its key (``$key``) and for the meta attached to the change (``$meta``).

    Rules of inner paths are applied first. An absent path has no effect. The order of the rules does not matter, and rules below
    a dropped or redacted field are removed as superfluous, so equal masks are equal objects.

    Attributes:
        rules: The rule of each path in its canonical text; sorted.
    """

    rules: tuple[tuple[str, Rule], ...]
    _trees: Mapping[str, _Node] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trees = {"": _Node(), "$meta": _Node(), "$key": _Node()}
        kept: dict[tuple[str, Path], Rule] = {}
        for text, rule in self.rules:
            root, path = parse_path("mask", text)
            if root not in trees or (root == "$key" and path):
                right = "a path into the entity, $key, or $meta with or without a path"
                raise InvalidOption("mask", text, right)
            kept[root, path] = rule
        for (root, path), rule in sorted(kept.items(), key=lambda each: each[0]):
            node = trees[root]
            hidden = node.rule is not None and not isinstance(node.rule, (Hash, Partial))
            for name in path:
                node = node.children.setdefault(name, _Node())
                hidden = hidden or isinstance(node.rule, (Drop, Redact))
            node.rule = rule
            if hidden and path:
                del kept[root, path]
        texts = sorted((path_text(path, root) if path else root, rule) for (root, path), rule in kept.items())
        for tree in trees.values():
            _note_drops(tree)
        object.__setattr__(self, "rules", tuple(texts))
        object.__setattr__(self, "_trees", trees)

    @classmethod
    def of(cls, rules: "Mapping[str, Rule | str | Mapping[str, Any]]") -> Self:
        """Makes a mask from rules by path: each a rule, a text that replaces the value, or a rule in its wire form.

        Raises:
            InvalidOption: If a path or a rule is invalid. The error does not repeat the invalid rule.
        """
        if not isinstance(rules, Mapping):
            raise InvalidOption("mask", type(rules).__name__, "a mapping of paths to rules")
        found = []
        for path in collected("mask", rules):
            parse_path("mask", path)
            found.append((path, _rule(f"mask[{path}]", rules[path])))
        return cls(tuple(found))

    def to_json(self) -> dict[str, Any]:
        """Returns the rules in their wire form."""
        return {path: msgspec.to_builtins(rule) for path, rule in self.rules}

    def touches(self, path: Path, root: str = "") -> bool:
        """Whether anything at, above or below a path is masked."""
        node = self._trees[root]
        for name in path:
            if node.rule is not None:
                return True
            below = node.children.get(name)
            if below is None:
                return False
            node = below
        return node.rule is not None or bool(node.children)

    def drops(self, path: Path) -> bool:
        """Whether the value at a path is left out."""
        node = self._trees[""]
        for name in path:
            below = node.children.get(name)
            if below is None:
                return False
            node = below
            if isinstance(node.rule, Drop):
                return True
        return False

    def key(self, key: str) -> str | None:
        """Masks a key; None if it is dropped."""
        rule = self._trees["$key"].rule
        if rule is None:
            return key
        shown = rule.replace(_string(key))
        return None if shown is None else str(json.loads(shown))

    def meta(self, text: bytes) -> bytes | None:
        """Masks the meta attached to a change; None if it is dropped.

        Raises:
            ValueError: If it is not JSON.
        """
        return _apply(text, self._trees["$meta"], values=True)

    def image(self, text: bytes) -> bytes:
        """Masks an image.

        Raises:
            ValueError: If it is not JSON.
        """
        return _below(text, self._trees[""], values=True)

    def image_fields(self, fields: Fields, *, values: bool = True) -> Fields:
        """Masks an image that is split into fields; without ``values``, fields are dropped but not masked.

        Raises:
            ValueError: If a value is not JSON.
        """
        tree = self._trees[""]
        return _fields(fields, tree, values=values) if values or tree.drops else fields


def _rule(parameter: str, given: object) -> Rule:
    right = "a text, Redact, Hash (with a key of at least 16 bytes), Partial (1 to 64) or Drop"
    rule: Rule | None = None
    if isinstance(given, Rule):
        rule = given
    elif isinstance(given, str):
        rule = Redact(given)
    elif isinstance(given, Mapping):
        try:
            rule = msgspec.convert(given, Rule)
        except (msgspec.ValidationError, TypeError, ValueError):
            rule = None
    if rule is None or not _fits(rule):
        raise InvalidOption(parameter, type(given).__name__, right)
    return rule


def _fits(rule: Rule) -> bool:
    match rule:
        case Redact(text):
            return isinstance(text, str)
        case Hash(key):
            return isinstance(key, str) and len(key.encode("utf-8", "replace")) >= _KEY_BYTES
        case Partial(last):
            return type(last) is int and 1 <= last <= _LAST_MAX
        case Drop():
            return True


def _note_drops(node: _Node) -> bool:
    below = [_note_drops(child) for child in node.children.values()]
    node.drops = isinstance(node.rule, Drop) or any(below)
    return node.drops


def _apply(text: bytes, node: _Node, *, values: bool) -> bytes | None:
    if isinstance(node.rule, Drop):
        return None
    if not values and not node.drops:
        return text
    text = _below(text, node, values=values)
    return text if node.rule is None or not values else node.rule.replace(text)


def _below(text: bytes, node: _Node, *, values: bool) -> bytes:
    if not node.children:
        return text
    fields = fields_of(text)
    if fields is not None:
        return write(_fields(fields, node, values=values))
    items = items_of(text)
    return text if items is None else write(_below(bytes(item), node, values=values) for item in items)


def _fields(fields: Fields, node: _Node, *, values: bool) -> Fields:
    found: dict[str, bytes | msgspec.Raw] = {}
    for name, value in fields.items():
        below = node.children.get(name)
        if below is None:
            found[name] = value
        elif (kept := _apply(bytes(value), below, values=values)) is not None:
            found[name] = kept
    return found
