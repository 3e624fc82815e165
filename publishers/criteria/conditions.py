"""Conditions on values in a change's images: a field, a comparison and a value.

A condition tests one image, the body (``AFTER``) or the image before the change (``BEFORE``). It holds only if that
image exists and is readable JSON. On an absent field nothing holds but ``EXISTS`` with False; null is a value like
any other. Numbers compare with numbers, exactly and at any length; text compares with text, by code point; no other
values have an order. True is not 1, and a decimal that was written as text is text.
"""

import enum
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any, Final, Self, TypeVar

import msgspec

from publishers.errors import InvalidCriteria
from publishers.lossless import encodable
from publishers.views.paths import split_path

__all__ = [
    "ABSENT",
    "LEAVING",
    "Comparison",
    "Image",
    "Scalar",
    "Transition",
    "Where",
    "find",
    "member",
    "value_key",
]

_Kind = TypeVar("_Kind", bound=enum.Enum)

Scalar = str | int | Decimal | bool | None

_NAMES_MAX: Final = 32
_NAME_MAX: Final = 1_024
_TEXT_MAX: Final = 65_536
_VALUES_MAX: Final = 10_000
_FIELDS: Final = ("path", "compare", "value", "image")


class Image(enum.Enum):
    """The image of the entity that a condition tests."""

    AFTER = "AFTER"
    BEFORE = "BEFORE"


class Transition(enum.Enum):
    """How a change moves an entity in relation to a filter.

    ENTERED: the filter holds after the change, and did not hold before it or there is no image before. LEFT: it held before
    the change, and does not hold after it or there is no image after. STAYED: it held before and holds after. MAYBE_LEFT: it does
    not hold after the change or there is no image after, and there is no image before, so that the entity may have left.
    """

    ENTERED = "ENTERED"
    LEFT = "LEFT"
    STAYED = "STAYED"
    MAYBE_LEFT = "MAYBE_LEFT"


LEAVING: Final = frozenset({Transition.LEFT, Transition.MAYBE_LEFT})
"""Moves by which an entity leaves, or may leave, a filter."""


class Comparison(enum.Enum):
    """A comparison. The value of a member is its spelling in an expression, beside its name."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    PREFIX = "prefix"
    EXISTS = "exists"
    IS_NULL = "is null"


_ORDERS: Final[dict[Comparison, Callable[[Any, Any], bool]]] = {
    Comparison.LT: lambda value, bound: value < bound,
    Comparison.LE: lambda value, bound: value <= bound,
    Comparison.GT: lambda value, bound: value > bound,
    Comparison.GE: lambda value, bound: value >= bound,
}
_FLAGS: Final = (Comparison.EXISTS, Comparison.IS_NULL)
_COMPARISONS: Final = {
    **{name: one for one in Comparison for name in (one.name, one.value.upper())},
    "=": Comparison.EQ,
}
_EXPRESSION: Final = re.compile(
    r"(?:(?P<image>before|after):)?(?P<path>[^\s=!<>]+)"
    r"(?:\s*(?P<sign>==?|!=|<=?|>=?)|\s+(?P<word>in|prefix|(?:not\s+)?exists|is\s+(?:not\s+)?null)\b)"
    r"\s*(?P<value>.*)",
    re.DOTALL | re.IGNORECASE,
)
_RIGHT: Final = (
    "an expression such as: total > 10, status == OPEN, status in [1,2], name prefix A, note is null"
)


class _Absent:
    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Stands for a field that an image lacks, and for an image that a change lacks."""


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Where:
    """One condition, normalised: equal conditions are equal objects, however they are written.

    Attributes:
        path: Names of the fields that lead to the value. As text they are separated by dots; a backslash makes the next
            dot part of a name. A name of digits is also an index into a list.
        comparison: The comparison.
        value: The operand: a number, text, True, False or None; for ``IN`` a tuple of them in a stable order; for ``EXISTS``
            and ``IS_NULL`` whether the field must exist or be null.
        image: The image that is tested.
        text: The condition as JSON; it decides equality.

    Raises:
        InvalidCriteria: If an argument is invalid; ``path`` names the argument.
    """

    path: tuple[str, ...]
    comparison: Comparison
    value: Scalar | tuple[Scalar, ...]
    image: Image
    text: str

    def __init__(
        self,
        path: str | Sequence[str | int],
        comparison: Comparison | str,
        value: object = ABSENT,
        *,
        image: Image | str = Image.AFTER,
    ) -> None:
        put = object.__setattr__
        how = _comparison(comparison)
        put(self, "path", _path(path))
        wanted = _wanted(how, value)
        if how is Comparison.IN and isinstance(wanted, tuple) and len(wanted) == 1:
            how, wanted = Comparison.EQ, wanted[0]
        put(self, "comparison", how)
        put(self, "value", wanted)
        put(self, "image", member("image", image, Image))
        put(self, "text", _text_of(self.to_json()))

    @classmethod
    def parse(cls, expression: str) -> Self:
        """Parses an expression such as ``total > 10``, ``before:address.city == "Brno"`` or ``note is not null``.

        The value is JSON; a value that is not JSON is text.

        Raises:
            InvalidCriteria: If the expression is malformed.
        """
        found = _EXPRESSION.fullmatch(expression.strip()) if isinstance(expression, str) else None
        if found is None:
            raise InvalidCriteria("where", expression, _RIGHT)
        words = (found["sign"] or found["word"]).lower().split()
        negative = "not" in words
        word = " ".join(word for word in words if word != "not")
        rest = found["value"].strip()
        if word in ("exists", "is null"):
            if rest:
                raise InvalidCriteria("where", expression, f"nothing after {found['word']}")
            value: object = not negative
        elif not rest or rest[0] in "=<>!":  # else a typing error would become a text that no value equals
            raise InvalidCriteria(
                "where", expression, f'a value after {found["sign"] or found["word"]}, text like "" in quotes'
            )
        else:
            value = _read(rest)
        return cls(found["path"], word, value, image=(found["image"] or "after").upper())

    @classmethod
    def from_json(cls, condition: object) -> Self:
        """Reads a condition in its wire form.

        Raises:
            InvalidCriteria: If it is malformed; ``path`` is the place of the error.
        """
        if not isinstance(condition, Mapping):
            raise InvalidCriteria("", condition, "an object")
        for name, value in condition.items():
            if name not in _FIELDS:
                raise InvalidCriteria(str(name), value, "one of " + ", ".join(_FIELDS))
        for name in ("path", "compare"):
            if name not in condition:
                raise InvalidCriteria(name, None, "given")
        try:
            return cls(
                condition["path"],
                condition["compare"],
                condition.get("value", ABSENT),
                image=condition.get("image", Image.AFTER),
            )
        except InvalidCriteria as error:
            path = "compare" if error.path == "comparison" else error.path
            raise InvalidCriteria(path, error.value, error.right) from None

    def to_json(self) -> dict[str, Any]:
        """Returns the condition in its wire form; defaults are left out."""
        plain: dict[str, Any] = {"path": _path_text(self.path), "compare": self.comparison.name}
        if isinstance(self.value, tuple):
            plain["value"] = [_plain(value) for value in self.value]
        elif self.comparison not in _FLAGS or self.value is False:
            plain["value"] = _plain(self.value)
        if self.image is not Image.AFTER:
            plain["image"] = self.image.name
        return plain

    def test(self) -> Callable[[Any], bool]:
        """Compiles the condition into a function of a value or ``ABSENT``."""
        value = self.value
        match self.comparison:
            case Comparison.EQ | Comparison.IN:
                keys = frozenset(map(value_key, value if isinstance(value, tuple) else (value,)))
                return lambda found: value_key(found) in keys
            case Comparison.NE:
                other = value_key(value)
                return lambda found: found is not ABSENT and value_key(found) != other
            case Comparison.PREFIX:
                head = str(value)
                return lambda found: isinstance(found, str) and found.startswith(head)
            case Comparison.EXISTS:
                return lambda found: (found is not ABSENT) is value
            case Comparison.IS_NULL:
                return lambda found: found is not ABSENT and (found is None) is value
            case order:
                holds = _ORDERS[order]
                kinds = (str,) if isinstance(value, str) else (int, Decimal)
                return lambda found: type(found) in kinds and holds(found, value)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Where) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<Where {self.text}>"


def find(document: Any, path: tuple[str, ...]) -> Any:
    """Returns the value at a path in parsed JSON, or ``ABSENT``."""
    for name in path:
        if type(document) is dict:
            document = document.get(name, ABSENT)
        elif type(document) is list and name.isascii() and name.isdigit() and len(name) < 10:
            place = int(name)
            document = document[place] if place < len(document) else ABSENT
        else:
            return ABSENT
    return document


def value_key(value: Any) -> object:
    """Returns a hashable key that is equal exactly for equal values; lists and objects equal no value of a condition."""
    if type(value) is bool:
        return (value,)
    return value if value is None or isinstance(value, (str, int, Decimal)) else _NEVER


_NEVER: Final = object()  # never the key of a condition's value


def _path(path: object) -> tuple[str, ...]:
    names = split_path(path) if isinstance(path, str) else path
    right = f"1 to {_NAMES_MAX} names of fields, such as customer.name, or a list of them"
    if not isinstance(names, (tuple, list)) or not 1 <= len(names) <= _NAMES_MAX:
        raise InvalidCriteria("path", path, right)
    found = tuple(str(name) if type(name) is int and name >= 0 else name for name in names)
    for name in found:
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not encodable(name):
            raise InvalidCriteria("path", path, right)
    return found


def _path_text(path: tuple[str, ...]) -> str:
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def _comparison(comparison: object) -> Comparison:
    if isinstance(comparison, Comparison):
        return comparison
    found = _COMPARISONS.get(" ".join(comparison.upper().split())) if isinstance(comparison, str) else None
    if found is None:
        raise InvalidCriteria("comparison", comparison, "one of " + ", ".join(one.name for one in Comparison))
    return found


def member(name: str, value: object, kind: type[_Kind]) -> _Kind:
    """Returns a member of an enum, from the member itself or its name.

    Raises:
        InvalidCriteria: If there is no such member.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, str) or value not in kind.__members__:
        raise InvalidCriteria(name, value, "one of " + ", ".join(kind.__members__))
    return kind[value]


def _wanted(comparison: Comparison, value: object) -> Scalar | tuple[Scalar, ...]:
    if comparison in _FLAGS:
        if value is ABSENT:
            return True
        if not isinstance(value, bool):
            raise InvalidCriteria("value", value, f"true or false with {comparison.name}")
        return value
    if value is ABSENT:
        raise InvalidCriteria("value", None, f"given with {comparison.name}")
    if comparison is Comparison.IN:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
            raise InvalidCriteria("value", value, "a list of values with IN")
        if not 0 < len(value) <= _VALUES_MAX:
            raise InvalidCriteria("value", f"{len(value)} values", f"a list of 1 to {_VALUES_MAX} values")
        distinct = {value_key(one): one for one in map(_scalar, value)}
        return tuple(sorted(distinct.values(), key=lambda one: _text_of(_plain(one))))
    found = _scalar(value)
    if comparison is Comparison.PREFIX and not isinstance(found, str):
        raise InvalidCriteria("value", value, "text with PREFIX")
    if comparison in _ORDERS and (found is None or isinstance(found, bool)):
        raise InvalidCriteria("value", value, f"a number or text with {comparison.name}")
    return found


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if len(value) > _TEXT_MAX or not encodable(value):
            raise InvalidCriteria("value", value, f"at most {_TEXT_MAX} characters that UTF-8 can hold")
        return value
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    raise InvalidCriteria("value", value, "a number, text, true, false or null")


def _number(value: float | Decimal) -> int | Decimal:
    """Returns the canonical form of a number: an int if it is whole, else a decimal that a double represents exactly."""
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    try:
        double = float(value)
        exact = Decimal(repr(double)) if isfinite(double) else None
    except (OverflowError, ValueError):
        exact = None
    if exact is None or (exact != value and not isinstance(value, float)):
        raise InvalidCriteria(
            "value", value, "a whole number of 64 bits, or one of which a double keeps every digit"
        )
    return int(exact) if -(2**63) <= exact < 2**64 and exact == exact.to_integral_value() else exact


def _plain(value: Scalar) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _text_of(plain: object) -> str:
    return msgspec.json.encode(plain).decode()


def _read(text: str) -> object:
    try:
        return msgspec.json.decode(text, strict=True)
    except (ValueError, InvalidOperation, RecursionError):
        return text
