"""The sources of snapshot rows that ``penstock serve --source`` names."""

import re
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from publishers.errors import InvalidOption, PenstockError
from publishers.snapshots import SnapshotSource, SqlSource
from publishers.snapshots.source import checked_sources
from transports.errors import ExtraMissing
from transports.sinks.secrets import SecretReference

__all__ = ["sources_of"]

_PYTHON: Final = re.compile(r"[\w.]+:[\w.]+")
_REFERENCES: Final = ("env:", "file:")
_RIGHT: Final = (
    "MODULE:NAME of a source, or TYPE=URL#TABLE of a table, such as 'order=sqlite:///shop.db#orders' or "
    "'order=env:SHOP_URL#orders'"
)


def sources_of(named: Sequence[str]) -> Sequence[SnapshotSource]:
    """Returns the sources that ``--source`` names, in order.

    Args:
        named: Each ``MODULE:NAME``, a source, several sources, or a function without arguments that returns them, imported
            from the working directory too; or ``TYPE=URL#TABLE``, a table with a primary key whose rows are entities of that
            type. A URL with a password may be replaced by a reference to it: ``env:NAME`` or ``file:PATH``.

    Raises:
        InvalidOption: If a source is invalid, cannot be loaded or reached, or if two have the same entity type. Never
            contains a URL.
        ExtraMissing: If a table is named and SQLAlchemy is not installed.
    """
    found = [source for text in named for source in _sources(text)]
    return checked_sources(found)


def _sources(text: str) -> Iterable[SnapshotSource]:
    if _PYTHON.fullmatch(text):
        return _loaded(text)
    entity_type, equals, place = text.partition("=")
    url, hash_, table = place.rpartition("#")
    if not (entity_type and equals and url and hash_ and table):
        raise InvalidOption("--source", text.partition("=")[0], _RIGHT)
    return [_table(entity_type, url, table)]


def _loaded(text: str) -> Sequence[SnapshotSource]:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # a console script does not search it by itself
    try:
        made: Any = EntryPoint(text, text, "").load()
        if callable(made) and not callable(getattr(made, "read", None)):
            made = made()
        return checked_sources(made)
    except Exception as error:
        raise InvalidOption("--source", text, f"one that can be loaded ({_why(error)})") from error


def _table(entity_type: str, url: str, name: str) -> SnapshotSource:
    try:
        import sqlalchemy as sa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissing("--source", error.name or "SQLAlchemy", "sql") from None
    shown = f"{entity_type}=...#{name}"
    schema, _, table_name = name.rpartition(".")
    try:
        engine = sa.create_engine(SecretReference(url).value() if url.startswith(_REFERENCES) else url)
        table = sa.Table(table_name, sa.MetaData(), schema=schema or None, autoload_with=engine)
    except PenstockError as error:
        raise InvalidOption("--source", shown, f"one whose URL is there: {error}") from None
    except sa.exc.NoSuchTableError:
        raise InvalidOption("--source", shown, "a table that the database has") from None
    except sa.exc.ArgumentError:  # its text contains the URL
        raise InvalidOption("--source", shown, "a URL of SQLAlchemy, such as 'sqlite:///shop.db'") from None
    except (sa.exc.SQLAlchemyError, ImportError) as error:
        raise InvalidOption("--source", shown, f"a database that can be reached ({_why(error)})") from None
    keys = [column.name for column in table.primary_key]
    if not keys:
        right = "a table with a primary key; of others a SqlSource in a module names the columns"
        raise InvalidOption("--source", shown, right)
    return SqlSource(engine, table, entity_type=entity_type, key=keys)


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(getattr(error, 'orig', None) or error).split())}"
