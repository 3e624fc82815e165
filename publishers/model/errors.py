"""Errors of invalid data, and the root of all errors; `publishers.errors` has the whole tree."""

import reprlib
from enum import Enum
from typing import Any, Final

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


class PenstockError(Exception):
    """The root of all errors that a change log raises on purpose. Each can be pickled without loss."""

    retryable: bool = False

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

    def __init__(self, parameter: str, value: object, right: str) -> None:
        wrong = "" if value is HIDDEN else f"is {shown(value)}, but "
        super().__init__(f"{parameter} {wrong}must be {right}")
        self.parameter = parameter
        self.value = value
        self.right = right


class ValueRefused(PenstockError, ValueError):
    """A stored value cannot be read as the type of its column without changing it.

    Attributes:
        column: The column: its name, and behind it the place in it, as in ``lines[0].price``. Empty for a value without a column.
        value: The value, parsed; the JSON of the whole image if that is no object.
        kind: The type that it should have.
        version, index: Place of the change that has the value; None if only the value was read.
    """

    def __init__(
        self, column: str, value: object, kind: str, version: int | None = None, index: int | None = None
    ) -> None:
        where = f"column {column!r}" if column else "the value"
        why = f"{where} is {shown(value)}, which cannot be read as {kind} without changing it"
        if version is not None:
            why = (
                f"change {version}:{index} is not what the schema of its entity type says ({why}); leave out the column that it "
                "concerns with columns=, give another schema with .schema(...), or read the log without schema=entity"
            )
        super().__init__(why)
        self.column = column
        self.value = value
        self.kind = kind
        self.version = version
        self.index = index

    def within(self, step: str) -> "ValueRefused":
        """Returns the error of a value around this one; ``step`` leads from there to here."""
        dot = "" if not self.column or self.column.startswith("[") else "."
        return ValueRefused(f"{step}{dot}{self.column}", self.value, self.kind)


class PositionError(PenstockError):
    """A position cannot be read from."""


class PositionMalformed(PositionError, ValueError):
    """A text is not a position."""

    def __init__(self, text: object) -> None:
        words, start = "", ""
        if text in ("earliest", "latest"):  # clients name these in another field
            start = "; as the place to begin, give it as start"
        elif not isinstance(text, str) or ":" not in text:  # it was meant as a word
            words = "be 'earliest' or 'latest', or "
        super().__init__(
            f"{text!r:.120} is not a position; it must {words}look like log_id:epoch.random:version:index{start}"
        )
        self.text = text
