"""Errors of invalid data, and the root of all errors; `publishers.errors` has the whole tree."""

import reprlib
from enum import Enum
from typing import Any, ClassVar, Final, dataclass_transform

__all__ = [
    "HIDDEN",
    "InvalidOption",
    "PenstockError",
    "PositionError",
    "PositionMalformed",
    "ValueRefused",
    "brief",
    "shown",
]


def shown(value: object) -> str:
    """Returns at most 200 characters of any value, even of one whose ``repr`` fails."""
    try:
        return f"{value!r:.200}"
    except Exception:  # noqa: BLE001 - a whole number above 4,300 digits, or a __repr__ that raises
        return f"a {type(value).__name__} that cannot be shown"


_BRIEF: Final = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def brief(record: Any) -> str:
    """The ``__repr__`` of a record that holds changes, rows or images: the first of them, and the beginning of each."""
    names = getattr(record, "__struct_fields__", None) or record.__dataclass_fields__
    fields = ", ".join(f"{name}={_BRIEF.repr(getattr(record, name))}" for name in names)
    return f"{type(record).__name__}({fields})"


class _Hidden(Enum):
    HIDDEN = "hidden"


HIDDEN: Final = _Hidden.HIDDEN
"""The value of an error that omits the value, which may be a secret or is too large to be shown."""


_REQUIRED: Final = object()


class _Values:
    """The attributes of an error, by name, as ``str.format_map`` asks for them."""

    def __init__(self, error: "PenstockError") -> None:
        self._error = error

    def __getitem__(self, name: str) -> object:
        return getattr(self._error, name)


@dataclass_transform(eq_default=False)
class PenstockError(Exception):
    """The root of all errors that a change log raises on purpose. Each can be pickled without loss.

    A subclass declares its data: its annotated attributes are its arguments, in their order, and ``says`` is the format of its
    text. One whose text takes more than that overrides ``_text``; one without data takes its text.

    Attributes:
        retryable: Whether the same call may succeed later although the caller changes nothing.
    """

    retryable: bool = False
    says: ClassVar[str] = ""
    _data: ClassVar[dict[str, object]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declaring = [base for base in reversed(cls.__mro__) if issubclass(base, PenstockError)][1:]
        cls._data = {
            name: vars(base).get(name, _REQUIRED)
            for base in declaring
            for name, kind in base.__annotations__.items()
            if "ClassVar" not in str(kind)
        }

    def __init__(self, *values: object, **named: object) -> None:
        if self._data:
            data = {**self._data, **dict(zip(self._data, values, strict=False)), **named}
            lacking = any(value is _REQUIRED for value in data.values())
            if len(values) > len(self._data) or len(data) > len(self._data) or lacking:
                raise TypeError(f"{type(self).__name__} takes {', '.join(self._data)}")
            vars(self).update(data)
        # Not by super(): some are errors of another tree as well, which would take the text for their data.
        Exception.__init__(self, *([self._text()] if self._data or self.says else values))

    def _text(self) -> str:
        return self.says.format_map(_Values(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling does not call the class: ``args`` hold only the text.
        return Exception.__new__, (type(self), *self.args), self.__dict__


class InvalidOption(PenstockError, ValueError):
    """An option is of the wrong type or out of its bounds.

    Attributes:
        parameter: The option.
        value: Its value; ``HIDDEN`` if the error omits it.
        right: What would be right.
    """

    parameter: str
    value: object
    right: str

    def _text(self) -> str:
        wrong = "" if self.value is HIDDEN else f"is {shown(self.value)}, but "
        return f"{self.parameter} {wrong}must be {self.right}"


class ValueRefused(PenstockError, ValueError):
    """A stored value cannot be read as the type of its column without changing it.

    Attributes:
        column: The column: its name, and behind it the place in it, as in ``lines[0].price``. Empty for a value without a column.
        value: The value, parsed; the JSON of the whole image if that is no object.
        kind: The type that it should have.
        version, index: Place of the change that has the value; None if only the value was read.
    """

    column: str
    value: object
    kind: str
    version: int | None = None
    index: int | None = None

    def _text(self) -> str:
        where = f"column {self.column!r}" if self.column else "the value"
        why = f"{where} is {shown(self.value)}, which cannot be read as {self.kind} without changing it"
        if self.version is None:
            return why
        return (
            f"change {self.version}:{self.index} is not what the schema of its entity type says ({why}); leave out the column that "
            "it concerns with columns=, give another schema with .schema(...), or read the log without schema=entity"
        )

    def within(self, step: str) -> "ValueRefused":
        """Returns the error of a value around this one; ``step`` leads from there to here."""
        dot = "" if not self.column or self.column.startswith("[") else "."
        return ValueRefused(f"{step}{dot}{self.column}", self.value, self.kind)


class PositionError(PenstockError):
    """A position cannot be read from."""


class PositionMalformed(PositionError, ValueError):
    """A text is not a position."""

    text: object

    def _text(self) -> str:
        words, start = "", ""
        if self.text in ("earliest", "latest"):  # clients name these in another field
            start = "; as the place to begin, give it as start"
        elif not isinstance(self.text, str) or ":" not in self.text:  # it was meant as a word
            words = "be 'earliest' or 'latest', or "
        return f"{self.text!r:.120} is not a position; it must {words}look like log_id:epoch.random:version:index{start}"
