"""What a sink may be given: checks that name the argument."""

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
    "column_names",
    "operation_words",
]


def check_comparable(log: ChangeLog | ServerLog, before: str | None) -> None:
    """Checks whether rows can be compared with the state of a log.

    Raises:
        InvalidOption: If the log is elsewhere, or images before are given.
        StateOff: If the log was opened without its state.
    """
    if not isinstance(log, ChangeLog):
        raise InvalidOption("compare", True, "False, as the state of a server's log is not here")
    if before is not None:
        raise InvalidOption(
            "before", before, "left out, as compare=True finds the images before in the state"
        )
    log.state  # noqa: B018 - which raises


def check_least(**given: tuple[object, int]) -> None:
    """Checks numbers, each given with the least that it may be.

    Raises:
        InvalidOption: If one is no number, or below that.
    """
    for parameter, (value, least) in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise InvalidOption(parameter, value, f"at least {least}")


def check_named(entity_type: str | None, column: str | None, name: str | None) -> None:
    """Checks what says of which entity type rows are, and what a sink is called if that does not.

    Raises:
        InvalidOption: If something is missing, or there twice.
    """
    if (entity_type is None) == (column is None):
        raise InvalidOption("entity_type", entity_type, "given, or entity_type_column instead of it")
    if entity_type is not None and not 1 <= len(entity_type) <= 1024:
        raise InvalidOption("entity_type", entity_type, "a text of 1 to 1024 characters")
    if name is None and entity_type is None:
        raise InvalidOption("name", name, "given if the entity type comes from a column")


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


def operation_words(given: Mapping[str, str] | None, column: str | None) -> Operations:
    """The words of an operation column, in small letters.

    Raises:
        InvalidOption: If they are no mapping of texts to names of operations, or there is no such column.
    """
    if given is None:
        return OPERATIONS
    told = (Operation.UPSERT, Operation.REMOVE, Operation.TRUNCATE, Operation.EXPIRE)
    meanings = {meaning.name.lower(): meaning for meaning in told}
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
