"""Reads the file that declares sinks and their lease (TOML); each error names the place of the mistake, and no secret."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidCriteria, InvalidOption
from publishers.model.errors import HIDDEN
from publishers.options import options_of
from publishers.slots.slots import check_slot_name
from publishers.views.view import Content, View
from transports.codec.starts import start_of_text
from transports.errors import ExtraMissing
from transports.sinks.file import FileSink
from transports.sinks.file_leases import FileLeases
from transports.sinks.formats import WebhookSource
from transports.sinks.lease import Lease, LeaseStore
from transports.sinks.options import SinkOptions
from transports.sinks.rejects import DeadLetterFile
from transports.sinks.retry import RetryPolicy
from transports.sinks.secrets import SecretReference
from transports.sinks.sink import Sink
from transports.sinks.sql_leases import SqlLeases
from transports.sinks.stream import StreamSink
from transports.sinks.tls import TargetTls

__all__ = ["DeclaredSink", "SinksFile", "declared_sink", "read_sinks"]


class ConfigTable:
    """One table of a file, with a fixed set of keys.

    Args:
        place: The place of the table in the file, for errors.
        value: The table.
        keys: The keys that it may have.

    Attributes:
        place: The place of the table.
        values: The table.

    Raises:
        InvalidOption: If it is not a table, or has another key.
    """

    def __init__(self, place: str, value: object, keys: tuple[str, ...]) -> None:
        self.place = place
        if not isinstance(value, Mapping):
            raise InvalidOption(place, type(value).__name__, f"a table with {', '.join(keys)}")
        for key in value:
            if key not in keys:
                raise InvalidOption(f"{place} key", key, f"one of {', '.join(keys)}")
        self.values: Mapping[str, Any] = value

    def wrong(self, key: str, right: str) -> InvalidOption:
        """Returns the error of a value, which it omits because it may be a secret."""
        return InvalidOption(f"{self.place} {key}", HIDDEN, right)

    def text(self, key: str) -> str:
        """Returns a text that must be present; raises ``InvalidOption``."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a text that is not empty")
        return value

    def picked(self, keys: tuple[str, ...]) -> dict[str, Any]:
        """Returns the values of the keys that are present."""
        return {key: self.values[key] for key in keys if key in self.values}

    def table(self, key: str, keys: tuple[str, ...]) -> dict[str, Any]:
        """Returns a table within this one, empty if it is missing; raises ``InvalidOption``."""
        return dict(ConfigTable(f"{self.place} {key}", self.values.get(key, {}), keys).values)

    def made(self, make: Callable[[], Any]) -> Any:
        """Calls ``make``; its errors name the place in the file, and no values, which may be secrets."""
        try:
            return make()
        except InvalidCriteria as error:
            raise InvalidOption(f"{self.place} {error.path}", error.value, error.right) from None
        except InvalidOption as error:
            if error.parameter.startswith(self.place):
                raise
            raise self.wrong(error.parameter, error.right) from None
        except (TypeError, AttributeError, ValueError):
            raise InvalidOption(self.place, HIDDEN, "values of the kinds that its keys have") from None


_KEYS: Final = ("kind", "seconds", "every", "margin", "holder")
_OF_KIND: Final = {"file": ("path",), "sql": ("url", "name", "table", "create")}


@dataclass(frozen=True, slots=True)
class DeclaredLease:
    """A declared lease.

    Attributes:
        kind: The kind of the lease.
        make: Makes the lease; raises if the declaration is wrong.
    """

    kind: str
    make: Callable[[], Lease]


def lease_of(table: ConfigTable, folder: Path) -> DeclaredLease:
    """Returns the lease that a file declares.

    Args:
        table: The whole file.
        folder: The directory of the file.

    Raises:
        InvalidOption: If a value is invalid.
        ExtraMissing: If it needs an extra that is not installed.
    """
    every = tuple(dict.fromkeys((*_KEYS, *(key for keys in _OF_KIND.values() for key in keys))))
    kind = table.table("lease", every).get("kind")
    if not isinstance(kind, str) or kind not in _OF_KIND:
        raise InvalidOption(f"{table.place} lease kind", kind, f"one of {', '.join(_OF_KIND)}")
    options = ConfigTable(f"{table.place} lease", table.values["lease"], (*_KEYS, *_OF_KIND[kind]))
    durations = options.picked(_KEYS[1:])

    def made() -> Lease:
        lease: Lease = options.made(lambda: Lease(_store(kind, options, folder), **durations))
        return lease

    if kind == "sql":
        _reference(options)
        try:
            import sqlalchemy  # noqa: F401, PLC0415 - an optional dependency
        except ImportError as error:
            raise ExtraMissing("lease kind = 'sql'", error.name or "sqlalchemy", "sql") from None
    else:
        options.text("path")
    return DeclaredLease(kind, made)


def _store(kind: str, options: ConfigTable, folder: Path) -> LeaseStore:
    if kind == "file":
        return FileLeases(folder / options.text("path"))
    from sqlalchemy import create_engine  # noqa: PLC0415 - an optional dependency
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415 - as above

    reference = _reference(options)
    try:
        engine = create_engine(reference.value(), pool_pre_ping=True, hide_parameters=True)
    except (ArgumentError, ImportError) as error:
        raise InvalidOption(
            "url", str(reference), f"an address that SQLAlchemy knows: {type(error).__name__}"
        ) from None
    given: dict[str, Any] = options.picked(("table", "create"))
    return SqlLeases(engine, options.text("name"), **given)


def _reference(options: ConfigTable) -> SecretReference:
    reference: SecretReference = options.made(lambda: SecretReference(options.text("url")))
    return reference


_TOP: Final = ("log", "log_name", "state", "lease", "http_kinds", "sinks")
_OPTIONS: Final = tuple(one.name for one in options_of(SinkOptions) if one.kind is not None)
_COMMON: Final = (
    "name", "kind", "entity_types", "criteria", "start", "content", "images", "fields", "mask", "integers", "retry",
    "dead_letters", *_OPTIONS,
)  # fmt: skip
_RETRY: Final = tuple(one.name for one in options_of(RetryPolicy) if one.kind is not None)
_WEBHOOK: Final = ("url", "secrets", "headers", "profile", "timeout", "compress", "allow")
_CACHE: Final = ("template", "values", "ttl", "timeout")
_KAFKA: Final = ("topic", "form", "tombstones", "field_changes", "schema_topic", "settings", "timeout")
_SQL: Final = ("create_tables", "tombstone_ttl", "places", "gaps", "writers", "timeout")
_OAUTH: Final = ("token_url", "client_id", "client_secret", "scope", "audience", "auth")
_TLS: Final = ("ca", "cert", "key", "server_name", "insecure_skip_verify")


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """A declared sink.

    Attributes:
        name: The name of the sink and its slot.
        kind: The kind of the sink.
        sink: The sink.
        options: The options of its runner.
    """

    name: str
    kind: str
    sink: Sink
    options: SinkOptions


@dataclass(frozen=True, slots=True)
class SinksFile:
    """The content of a file of sinks.

    Attributes:
        path: The path of the file.
        directory: The directory of the log or the store.
        log_name: The name of the log in a store; None if the directory has one log only.
        sinks: The sinks by their names.
        lease: The lease that decides which of several processes runs the sinks; None for one process.
        http_kinds: The kinds of sinks that may be declared over HTTP in addition.
        state: Whether the owner of the log keeps its state, the source of rows; by default, if a sink carries rows.
    """

    path: Path
    directory: Path
    log_name: str | None
    sinks: Mapping[str, DeclaredSink]
    lease: DeclaredLease | None = None
    http_kinds: tuple[str, ...] = ("webhook",)
    state: bool = False


def read_sinks(path: str | Path) -> SinksFile:
    """Reads a file of sinks; it may name other files relative to itself.

    Raises:
        InvalidOption: If a value is invalid.
        ExtraMissing: If a kind of sink needs an extra that is not installed.
    """
    file = Path(path)
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InvalidOption("FILE", str(file), f"a file of sinks: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(str(file), HIDDEN, f"TOML: {error}") from None
    table = ConfigTable(str(file), document, _TOP)
    listed, kinds = document.get("sinks"), document.get("http_kinds", ["webhook"])
    if not isinstance(kinds, list) or not all(kind in _KINDS for kind in kinds):
        raise table.wrong("http_kinds", f"some of {', '.join(_KINDS)}")
    if not isinstance(listed, list) or not (listed or "http_kinds" in document):
        raise table.wrong("sinks", "tables [[sinks]], one for each sink")
    sinks: dict[str, DeclaredSink] = {}
    for number, one in enumerate(listed, 1):
        made = declared_sink(f"{file}: [[sinks]] {number}", one, file.parent)
        if made.name in sinks:
            raise InvalidOption(f"{file}: [[sinks]] {number} name", made.name, "another name for each sink")
        sinks[made.name] = made
    name = table.text("log_name") if "log_name" in document else None
    lease = lease_of(table, file.parent) if "lease" in document else None
    state = document.get("state", any(one.options.snapshot != "never" for one in sinks.values()))
    if not isinstance(state, bool):
        raise table.wrong("state", "true or false")
    return SinksFile(file, file.parent / table.text("log"), name, sinks, lease, tuple(kinds), state)


def declared_sink(place: str, value: object, folder: Path) -> DeclaredSink:
    """Makes a sink from its table.

    Args:
        place: The place of the table in the file, for errors.
        value: The table.
        folder: The directory that relative files are in.

    Raises:
        InvalidOption: If a value is invalid.
        ExtraMissing: If its kind needs an extra that is not installed.
    """
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidOption(f"{place} kind", kind, f"one of {', '.join(_KINDS)}")
    keys, make = _KINDS[kind]
    table = ConfigTable(place, value, (*_COMMON, *keys))
    name = table.text("name")
    table.made(lambda: check_slot_name(name))
    return DeclaredSink(
        name, kind, table.made(lambda: make(table, folder)), table.made(lambda: _options(table, folder))
    )


def _options(table: ConfigTable, folder: Path) -> SinkOptions:
    declared = table.values
    criteria = Criteria.from_json(declared["criteria"]) if "criteria" in declared else None
    if "entity_types" in declared:
        if criteria is not None:
            raise table.wrong("entity_types", "left out with criteria")
        criteria = Criteria.of(Criterion(entity_types=declared["entity_types"]))
    viewed = table.picked(("images", "fields", "mask", "integers"))
    letters = declared.get("dead_letters")
    return SinkOptions(
        criteria=criteria,
        since=start_of_text("start", str(declared.get("start", "latest"))),
        view=View.of(Content(declared.get("content", "BODY")), **viewed),
        retry=RetryPolicy(**table.table("retry", _RETRY)),
        dead_letters=None if letters is None else DeadLetterFile(folder / letters),
        **table.picked(_OPTIONS),
    )


def _file(table: ConfigTable, folder: Path) -> Sink:
    named = {"name": table.values["files"]} if "files" in table.values else {}
    return FileSink(folder / table.text("directory"), **named, **table.picked(("max_bytes", "max_age")))


def _stdout(_table: ConfigTable, _folder: Path) -> Sink:
    return StreamSink()


def _webhook(table: ConfigTable, folder: Path) -> Sink:
    try:
        from transports.sinks.oauth import ClientCredentials  # noqa: PLC0415 - as below
        from transports.sinks.webhook import WebhookSink  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("kind = 'webhook'", error.name or "httpcore", "webhook") from None
    return WebhookSink(
        **table.picked(_WEBHOOK),
        source=WebhookSource(**table.picked(("service", "node"))),
        tls=_tls(table, folder),
        oauth=ClientCredentials(**table.table("oauth", _OAUTH)) if "oauth" in table.values else None,
    )


def _tls(table: ConfigTable, folder: Path) -> TargetTls | None:
    options = table.table("tls", _TLS)
    for key in ("ca", "cert", "key"):
        if key in options:
            options[key] = str(folder / options[key])
    return TargetTls(**options) if options else None


def _cache(table: ConfigTable, folder: Path) -> Sink:
    try:
        from transports.sinks.cache import CacheSink  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("kind = 'cache'", error.name or "redis", "redis") from None
    return CacheSink(table.text("url"), tls=_tls(table, folder), **table.picked(_CACHE))


def _kafka(table: ConfigTable, folder: Path) -> Sink:
    try:
        from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("kind = 'kafka'", error.name or "confluent_kafka", "kafka") from None
    source = WebhookSource(**table.picked(("service", "node")))
    make = ExactlyOnceKafkaSink if table.values.get("exactly_once", False) is True else KafkaSink
    return make(table.text("servers"), source=source, tls=_tls(table, folder), **table.picked(_KAFKA))


def _search(table: ConfigTable, folder: Path) -> Sink:
    try:
        from transports.sinks.search import SearchSink  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("kind = 'search'", error.name or "opensearchpy", "search") from None
    return SearchSink(table.text("url"), tls=_tls(table, folder), **table.picked(("index", "timeout")))


def _sql(table: ConfigTable, folder: Path) -> Sink:
    try:
        from transports.sinks.sql import SqlSink, SqlTable  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("kind = 'sql'", error.name or "sqlalchemy", "sql") from None
    tables = table.values.get("tables")
    if isinstance(tables, Mapping):
        tables = {kind: SqlTable(**one) if isinstance(one, Mapping) else one for kind, one in tables.items()}
    try:
        return SqlSink(table.text("url"), tables, tls=_tls(table, folder), **table.picked(_SQL))
    except ImportError as error:
        raise ExtraMissing("a sink for PostgreSQL", error.name or "psycopg", "postgresql") from None


_KINDS: Final[dict[str, tuple[tuple[str, ...], Callable[[ConfigTable, Path], Sink]]]] = {
    "cache": (("url", "tls", *_CACHE), _cache),
    "file": (("directory", "files", "max_bytes", "max_age"), _file),
    "stdout": ((), _stdout),
    "kafka": (("servers", "exactly_once", "service", "node", "tls", *_KAFKA), _kafka),
    "search": (("url", "index", "timeout", "tls"), _search),
    "sql": (("url", "tables", "tls", *_SQL), _sql),
    "webhook": ((*_WEBHOOK, "service", "node", "tls", "oauth"), _webhook),
}
"""The keys of each kind besides the common ones, and the function that makes the sink."""
