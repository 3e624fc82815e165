"""What a sink may be given: checks that name the argument."""

from collections.abc import Iterable, Sequence

from publishers.errors import InvalidOption

__all__ = ["check_texts", "column_names"]


def check_texts(**given: object) -> None:
    """Checks what is a text or left out.

    Raises:
        InvalidOption: If something is neither.
    """
    for parameter, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidOption(parameter, value, "a text, or left out")


def column_names(parameter: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """One name of a column, or several.

    Raises:
        InvalidOption: If it is none, or a name is there twice.
    """
    if not isinstance(given, Iterable):
        raise InvalidOption(parameter, given, "a column name, or several")
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(parameter, given, "a column name, or several")
    if len(set(names)) < len(names):
        raise InvalidOption(parameter, given, "different column names")
    return names
