"""The lease that a file of sinks declares."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from publishers.errors import InvalidOption
from transports.errors import ExtraMissing
from transports.sinks.config_table import ConfigTable
from transports.sinks.file_leases import FileLeases
from transports.sinks.lease import Lease, LeaseStore
from transports.sinks.secrets import SecretReference
from transports.sinks.sql_leases import SqlLeases

__all__ = ["DeclaredLease", "lease_of"]

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
