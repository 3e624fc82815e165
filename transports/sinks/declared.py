"""Sinks declared over HTTP while a log is served: stored beside the log, so that they survive a restart; and those that are not declared any more."""

import re
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from publishers.errors import InvalidOption
from publishers.model.errors import HIDDEN
from transports.sinks.config import DeclaredSink, declared_sink
from transports.sinks.directory import replace_file
from transports.sinks.errors import SinkError

__all__ = ["KINDS_FROM_AFAR", "StoredSinks", "left_behind", "secrets_of"]


KINDS_FROM_AFAR: Final = ("webhook",)
"""The kinds that may be declared over HTTP by default: they access no file, and only public addresses."""

_FOLDER: Final = "sinks"
_SUFFIX: Final = ".declared.json"
_OWN: Final = "env:PENSTOCK_SINK_"
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9]")
_LOCAL: Final = ("allow", "dead_letters", "directory", "settings", "tls")
_SCHEMES: Final = ("http", "https", "redis", "rediss", "postgresql")


class StoredSinks:
    """The stored declarations of one log.

    Args:
        directory: The directory of the log.
        log: The name of the log, to which the secrets of its sinks are bound.
        elsewhere: The names of sinks declared in a file; the file takes precedence, and is never written here.
        file: The path of that file.
    """

    def __init__(
        self, directory: Path, log: str, elsewhere: Collection[str] = (), file: Path | None = None
    ) -> None:
        self._folder = directory / _FOLDER
        self._log = log
        self._elsewhere, self._file = elsewhere, file

    def __iter__(self) -> Iterator[DeclaredSink]:
        """Yields the stored sinks that no file declares; raises ``InvalidOption`` with the path for a declaration that is invalid."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            if path.name.removesuffix(_SUFFIX) in self._elsewhere:
                continue
            try:
                document = msgspec.json.decode(path.read_bytes())
            except msgspec.MsgspecError:
                raise InvalidOption(str(path), HIDDEN, "a declaration of a sink; delete the file") from None
            yield declared_sink(str(path), document, self._folder)

    def put(self, declaration: Mapping[str, Any], kinds: Collection[str]) -> DeclaredSink:
        """Stores a declaration; durable when it returns.

        Args:
            declaration: The keys of the sink, as in a file of sinks.
            kinds: The kinds that are allowed.

        Raises:
            InvalidOption: If it is invalid, or uses a key that only a file on the server may have.
        """
        kind = declaration.get("kind")
        if kind not in kinds:
            raise InvalidOption("kind", kind, f"a kind that may be declared over HTTP: {', '.join(kinds)}")
        for key in _LOCAL:
            if key in declaration:
                raise InvalidOption(key, HIDDEN, "left out: only a file of the server may have it")
        _check_secrets("sink", declaration, secrets_of(self._log, str(declaration.get("name"))))
        made = declared_sink("sink", declaration, self._folder)
        self._folder.mkdir(exist_ok=True)
        replace_file(self._path(made.name), msgspec.json.encode(declaration))
        return made

    def check_kept(self, name: str) -> None:
        """Raises ``SinkError`` for a sink that a restart would bring back although it was dropped here."""
        if name in self._elsewhere:
            where = f"in {self._file}: remove it there"
        elif not self._path(name).exists():
            where = "by the program: remove it there"
        else:
            return
        raise SinkError(f"sink {name!r} is declared {where}, or switch it off")

    def drop(self, name: str) -> None:
        """Deletes a declaration, if it is stored."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"


def secrets_of(log: str, sink: str) -> str:
    """Returns how the references to secrets begin that a sink declared over HTTP may have.

    They name its log and itself, so that who may manage one log cannot send away the secret of another. Letters and digits
    stand for themselves and everything else for ``_`` and its code in hexadecimal digits, so that no two sinks share a beginning.
    """

    def word(name: str) -> str:
        return _ESCAPED.sub(lambda found: "".join(f"_{byte:02X}" for byte in found[0].encode()), name)

    return f"{_OWN}{word(log)}__{word(sink)}__"


def _check_secrets(place: str, part: object, own: str) -> None:
    """Refuses references to other secrets that the environment and the files of the server hold."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            _check_secrets(f"{place} {key}", value, own)
            if key in ("url", "token_url") and isinstance(value, str) and not value.startswith(own):
                _check_url(f"{place} {key}", value, own)
    elif isinstance(part, list):
        for one in part:
            _check_secrets(place, one, own)
    elif isinstance(part, str) and part.startswith(("env:", "file:")) and not part.startswith(own):
        raise InvalidOption(place, HIDDEN, f"a reference that begins with {own}")


def _check_url(place: str, text: str, own: str) -> None:
    try:
        parts = urlsplit(text)
        good = parts.scheme in _SCHEMES and parts.username is None and parts.password is None
    except ValueError:
        good = False
    if not good:
        raise InvalidOption(place, HIDDEN, f"an address without credentials, or {own}NAME")


_NAME: Final = "STARTED"  # in capitals, which the name of a sink has not


def left_behind(directory: Path, declared: Collection[str], slots: Container[str]) -> list[str]:
    """Notes the sinks that are started on a log; returns the names of earlier ones that are not declared any more and have a slot.

    Args:
        directory: The directory of the log.
        declared: The names of the sinks that are started now.
        slots: The names of the slots of the log.
    """
    path = directory / _FOLDER / _NAME
    try:
        before = msgspec.json.decode(path.read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):  # without it, earlier sinks are not known
        before = []
    left = sorted(name for name in {*before} - {*declared} if name in slots)
    names = sorted({*declared, *left})
    if names != before:
        with suppress(OSError):  # sinks also start while the disk is full
            path.parent.mkdir(exist_ok=True)
            replace_file(path, msgspec.json.encode(names))
    return left
