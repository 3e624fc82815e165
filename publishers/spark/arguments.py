"""Checks of a sink's arguments; each error names the argument."""

from collections.abc import Iterable, Mapping, Sequence

from publishers.errors import InvalidOption
from publishers.log.changelog import ChangeLog
from publishers.model.change import Operation
from publishers.spark.schema import OPERATIONS, Operations
from publishers.spark.server_log import ServerLog

__all__ = [
    "check_comparable",
    "check_least",
    "check_named",
    "check_texts",
    "check_words",
    "column_names",
    "operation_words",
]


def check_comparable(log: ChangeLog | ServerLog, before: str | None) -> None:
    """Checks that rows can be compared with the state of a log.

    Raises:
        InvalidOption: If the log belongs to a server, or ``before`` names a column of before images.
        StateOff: If the log was opened without its state.
    """
    if not isinstance(log, ChangeLog):
        raise InvalidOption("compare", True, "False, as the state of a server's log is not here")
    if before is not None:
        raise InvalidOption(
            "before", before, "left out, as compare=True finds the images before in the state"
        )
    log.state  # noqa: B018 - raises StateOff


def check_least(**given: tuple[object, int]) -> None:
    """Checks numeric arguments, each passed as a pair of value and minimum.

    Raises:
        InvalidOption: If a value is not a number, or is below its minimum.
    """
    for parameter, (value, least) in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise InvalidOption(parameter, value, f"at least {least}")


def check_named(entity_type: str | None, column: str | None, name: str | None) -> None:
    """Checks that the entity type has exactly one source, and that the sink gets a name.

    The name defaults to the entity type; it is required if the entity type comes from a column.

    Raises:
        InvalidOption: If the entity type has no source or two, is not 1 to 1,024 characters long, or if the name is missing.
    """
    if (entity_type is None) == (column is None):
        raise InvalidOption("entity_type", entity_type, "given, or entity_type_column instead of it")
    if entity_type is not None and not 1 <= len(entity_type) <= 1024:
        raise InvalidOption("entity_type", entity_type, "a text of 1 to 1024 characters")
    if name is None and entity_type is None:
        raise InvalidOption("name", name, "given if the entity type comes from a column")


def check_texts(**given: object) -> None:
    """Checks that each argument is a string or None.

    Raises:
        InvalidOption: If an argument is neither.
    """
    for parameter, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidOption(parameter, value, "a text, or left out")


def column_names(parameter: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Returns column names as a tuple; accepts one name or several.

    Raises:
        InvalidOption: If there is no name, a name is not a non-empty string, or a name occurs twice.
    """
    if not isinstance(given, Iterable):
        raise InvalidOption(parameter, given, "a column name, or several")
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(parameter, given, "a column name, or several")
    if len(set(names)) < len(names):
        raise InvalidOption(parameter, given, "different column names")
    return names


def operation_words(given: Mapping[str, str] | None, column: str | None) -> Operations:
    """Returns the words of an operation column in lower case, each with its operation.

    Raises:
        InvalidOption: If ``given`` is not a mapping of strings to names of operations, if two words differ only in case, or
            if there is no operation column.
    """
    if given is None:
        return OPERATIONS
    allowed = (Operation.UPSERT, Operation.REMOVE, Operation.TRUNCATE, Operation.EXPIRE)
    meanings = {meaning.name.lower(): meaning for meaning in allowed}
    if column is None:
        raise InvalidOption("operations", given, "left out where there is no operation_column")
    if not isinstance(given, Mapping) or not given:
        raise InvalidOption("operations", given, "a mapping such as {'c': 'upsert', 'd': 'remove'}")
    if len({str(word).lower() for word in given}) < len(given):
        raise InvalidOption("operations", given, "different words, as they are taken in letters of any case")
    for word, meaning in given.items():
        if not isinstance(word, str) or not isinstance(meaning, str) or meaning not in meanings:
            raise InvalidOption(
                "operations", {word: meaning}, "texts mapped to 'upsert', 'remove', 'truncate' or 'expire'"
            )
    return tuple((word.lower(), meanings[meaning]) for word, meaning in given.items())


def check_words(operation: str, on_rerun: str) -> None:
    """Checks the values of ``operation`` and ``on_rerun``.

    Raises:
        InvalidOption: If a value is not one of the allowed words.
    """
    if operation not in ("upsert", "remove"):
        raise InvalidOption("operation", operation, "'upsert' or 'remove'")
    if on_rerun not in ("trust", "verify"):
        raise InvalidOption("on_rerun", on_rerun, "'trust' or 'verify'")
