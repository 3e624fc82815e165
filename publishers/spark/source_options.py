"""The options of the source; Spark passes all of them as strings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.spark.source_entities import CHANGE_TYPES
from publishers.views.view import Content

__all__ = ["ServerAddress", "SourceOptions", "check_known", "listed", "path_of"]

_PARTITION_BYTES: Final = 32 * 1024 * 1024
_OF_ENTITIES: Final = {"areas": ("DATA",), "operations": tuple(one.name for one in CHANGE_TYPES)}
_WISHES: Final = {"entity_type": "entity_types", "operation": "operations", "key": "keys", "area": "areas"}
_KNOWN: Final = (
    "path", "since", "until", *_WISHES, "criteria", "content", "columns", "consumer", "maxBytesPerBatch",
    "maxVersionsPerBatch", "partitionBytes", "schema", "token", "log_name", "partitions",
)  # fmt: skip
_OF_DIRECTORIES: Final = ("consumer", "maxBytesPerBatch", "partitionBytes")
_OF_SERVERS: Final = ("token", "log_name", "partitions")
_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a server's log.

    Attributes:
        url: Address of the server.
        token: Access token for the server, or None.
        log_name: Name of the log; None if the server has only one.
        partitions: Maximum number of tasks of a batch.
    """

    url: str
    token: str | None
    log_name: str | None
    partitions: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ServerAddress | None":
        """Parses the address from options; returns None if ``path`` is a directory.

        Raises:
            InvalidOption: If an option for directories comes with a server, or one for servers with a directory.
        """
        url = given.get("path") or ""
        served = url.startswith(("ws://", "wss://"))
        for name in _OF_DIRECTORIES if served else _OF_SERVERS:
            if name in given:
                where = "directory" if served else "server"
                raise InvalidOption(name, "..." if name == "token" else given[name], f"left out, as it is for the log of a {where}")  # fmt: skip
        partitions = _whole(given, "partitions", 1) or _PARTITIONS
        return cls(url, given.get("token"), given.get("log_name"), partitions) if served else None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a source.

    Attributes:
        path: Directory of the log; ``Path()`` for a server's log.
        server: Address of a server's log, or None.
        since: Start position: a word, a version or a token; None for the default (batch: earliest, stream: latest).
        until: The last version, or None.
        criteria: Criteria of the changes.
        content: HEADER or BODY; HEADER leaves images null.
        columns: Names of the columns; None for all.
        entity: The entity type whose schema types the rows; None for rows that are changes.
        consumer: Name of the consumer whose hard links to read through, or None.
        max_bytes: Maximum bytes of a micro-batch, or None.
        max_versions: Maximum versions of a micro-batch, or None.
        partition_bytes: Approximate bytes of a task.
    """

    path: Path
    server: ServerAddress | None
    since: str | None
    until: int | None
    criteria: Criteria
    content: Content
    columns: tuple[str, ...] | None
    entity: str | None
    consumer: str | None
    max_bytes: int | None
    max_versions: int | None
    partition_bytes: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Parses options.

        Raises:
            InvalidOption: If an option is unknown, or its value is invalid.
            InvalidCriteria: If the criteria are invalid.
        """
        check_known(given, _KNOWN)
        content = given.get("content", "BODY")
        if content not in Content.__members__:
            raise InvalidOption("content", content, "BODY or HEADER")
        entity = _entity(given)
        server = ServerAddress.of(given)
        columns = given.get("columns")
        return cls(
            path=Path() if server is not None else path_of(given),
            server=server,
            since=given.get("since"),
            until=_whole(given, "until", 0),
            criteria=_criteria(given, _OF_ENTITIES if entity is not None else {}),
            content=Content[content],
            columns=None if columns is None else listed(columns),
            entity=entity,
            consumer=given.get("consumer"),
            max_bytes=_whole(given, "maxBytesPerBatch", 1),
            max_versions=_whole(given, "maxVersionsPerBatch", 1),
            partition_bytes=_whole(given, "partitionBytes", 1) or _PARTITION_BYTES,
        )


def check_known(given: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Checks the names of options against the known ones, regardless of case.

    Raises:
        InvalidOption: If an option is unknown.
    """
    names = {name.lower() for name in known}
    if "owner" in given:  # a property of every table in Spark's catalog
        raise InvalidOption("format", "penstock", "left out of CREATE TABLE, as a catalog cannot hold a log; CREATE TEMPORARY VIEW name USING penstock OPTIONS (path '...') can")  # fmt: skip
    for name, value in given.items():
        if name.lower() not in names:
            raise InvalidOption(name, value, f"left out: the options are {', '.join(known)}")


def path_of(given: Mapping[str, str]) -> Path:
    """Returns the directory of the log from the option ``path``.

    Raises:
        InvalidOption: If ``path`` is missing, or is an address.
    """
    path = given.get("path")
    if not path:
        raise InvalidOption(
            "path", path, "the directory of a log: load('/path/to/log'), save('/path/to/log')"
        )
    path = path.removeprefix("file://")
    if "://" in path:
        raise InvalidOption(
            "path",
            path,
            "the directory of a log on this machine, or to be read one of a server: load('wss://host/ws')",
        )
    return Path(path)


def listed(text: str) -> tuple[str, ...]:
    """Splits a text at commas and strips each part."""
    return tuple(part.strip() for part in text.split(","))


def _whole(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise InvalidOption(name, text, f"a whole number from {least}")
    return int(text)


def _entity(given: Mapping[str, str]) -> str | None:
    schema = given.get("schema", "change")
    if schema not in ("change", "entity"):
        raise InvalidOption("schema", schema, "change or entity")
    if schema == "change":
        return None
    named = listed(given.get("entity_type", ""))
    if len(named) > 1 or not named[0]:
        raise InvalidOption("entity_type", given.get("entity_type"), "one entity type where schema is entity")
    for name, only in (("area", "DATA"), ("content", "BODY")):
        if given.get(name, only) != only:
            raise InvalidOption(name, given[name], f"{only}, or left out, where schema is entity")
    for name in listed(given.get("operation", _OF_ENTITIES["operations"][0])):
        if name not in _OF_ENTITIES["operations"]:
            raise InvalidOption("operation", name, f"one of {', '.join(_OF_ENTITIES['operations'])} where schema is entity")  # fmt: skip
    return named[0]


def _criteria(given: Mapping[str, str], fixed: Mapping[str, tuple[str, ...]]) -> Criteria:
    fields: dict[str, Any] = {
        **fixed,
        **{field: listed(given[name]) for name, field in _WISHES.items() if name in given},
    }
    text = given.get("criteria")
    if text is None:
        return Criteria.of(Criterion(**fields))
    if fields:
        raise InvalidOption(
            "criteria", text, f"left out where there is {', '.join(n for n in _WISHES if n in given)}"
        )
    try:
        return Criteria.from_json(msgspec.json.decode(text))
    except msgspec.DecodeError as error:
        raise InvalidOption("criteria", text, f"JSON, a list of criteria ({error})") from None
