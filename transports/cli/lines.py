"""Options of every command for the lines on standard error, all of which are JSON if one asks for JSON."""

import argparse
import io
import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

from transports.telemetry.lines import ACCESS, JsonLines, Repeats, TextLines

__all__ = ["add_arguments", "as_json", "begin", "begin_early", "end", "say"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_COMMAND: Final = logging.getLogger("penstock.command")
_ROOTS: Final = ("penstock", "flow")
_FORMAT: Final = "--log-format"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("lines on standard error")
    # Without a default: one that a command below a command has not been given must not replace that of the latter.
    none = argparse.SUPPRESS
    group.add_argument(
        _FORMAT, choices=("text", "json"), default=none, help="as text, or as one JSON object a line"
    )
    what = "least important lines to be written (default: warning)"
    group.add_argument("--log-level", choices=_LEVELS, default=none, help=what)


def begin_early(arguments: Sequence[str]) -> None:
    """Configures logging before the arguments are parsed, because what is wrong with them is a line too."""
    for place, argument in enumerate(arguments):
        name, given, value = argument.partition("=")
        if _FORMAT.startswith(name) and name > "--log-":  # options may be shortened
            if (value if given else "".join(arguments[place + 1 : place + 2])) == "json":
                begin(argparse.Namespace(log_format="json"))
            return


def begin(chosen: argparse.Namespace, *, always: bool = False) -> None:
    """Configures logging by the options; without any, Python's defaults apply, unless ``always``.

    Args:
        chosen: The arguments of the command.
        always: Whether to configure logging without an option too, for commands that run for long.
    """
    kind, level = getattr(chosen, "log_format", None), getattr(chosen, "log_level", None)
    access = getattr(chosen, "access_log", False)
    if not (always or kind or level or access):
        return
    end()
    stream = sys.stderr
    handler = _Handler(stream)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    handler.addFilter(Repeats())
    logging.getLogger().addHandler(handler)  # the lines of other packages too, such as those of uvicorn
    for name in _ROOTS:
        logging.getLogger(name).setLevel((level or "warning").upper())
    logging.getLogger(ACCESS).setLevel(logging.INFO if access else logging.CRITICAL)
    if kind == "json":
        _everything_as_json(stream)


class _Handler(logging.StreamHandler[TextIO]):
    """The handler of this command."""


class _JsonStream(io.TextIOBase):
    """Standard error for everything but the handler: each line becomes a JSON object.

    Notices of commands are written here, and whatever Python and other packages print.

    Args:
        stream: The real standard error.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._format = JsonLines().format
        self._lock = threading.RLock()
        self._begun = ""

    def write(self, text: str) -> int:
        """Writes the lines that are complete."""
        with self._lock:
            *whole, self._begun = (self._begun + text).split("\n")
            for line in whole:
                self._line(line)
        return len(text)

    def _line(self, line: str) -> None:
        said = line.removeprefix("penstock: ").rstrip("\r")
        if said.strip():
            record = logging.LogRecord(_COMMAND.name, logging.INFO, "", 0, "%s", (said,), None)
            with suppress(OSError, ValueError):  # as the handler does: there is nowhere left to report it to
                self.stream.write(self._format(record) + "\n")
                self.stream.flush()

    def rest(self) -> None:
        """Writes a line that has no end."""
        self.write("\n")

    def writable(self) -> bool:
        """Whether it can be written to."""
        return True


def _everything_as_json(stream: TextIO) -> None:
    """Directs warnings, and exceptions that end a thread or are raised where no code can catch them, to the log."""
    sys.stderr = _JsonStream(stream)
    logging.captureWarnings(True)

    def of_thread(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_type is not SystemExit:
            name = "a thread" if ended.thread is None else ended.thread.name
            _COMMAND.error("%s ended by an exception", name, exc_info=_caught(ended))

    def unraisable(failed: Any) -> None:
        what = failed.err_msg or "an exception was ignored"
        _COMMAND.error("%s: %r", what, failed.object, exc_info=_caught(failed))

    threading.excepthook = of_thread
    sys.unraisablehook = unraisable


def _caught(given: Any) -> Any:
    return given.exc_type, given.exc_value or given.exc_type(), given.exc_traceback


def end() -> None:
    """Undoes ``begin``, for a program that runs several commands."""
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(handler)
        for name in _ROOTS:
            logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger(ACCESS).setLevel(logging.NOTSET)
    if isinstance(sys.stderr, _JsonStream):
        sys.stderr.rest()
        sys.stderr = sys.stderr.stream
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = threading.__excepthook__, sys.__unraisablehook__


def say(error: object, code: int, *, trace: bool = False) -> None:
    """Writes the error that ends a command: as JSON if requested, otherwise as one plain line.

    Args:
        error: The error.
        code: The exit code of the command.
        trace: Whether JSON has the traceback of the exception that is handled.
    """
    text = " ".join(str(error).split())
    kind = type(error).__name__ if isinstance(error, BaseException) else "Usage"
    if as_json():
        _COMMAND.error(text, extra={"data": {"code": code, "error": kind}}, exc_info=trace)
    else:
        print(f"penstock: {text}", file=sys.stderr)


def as_json() -> bool:
    """Whether the lines are JSON."""
    return isinstance(sys.stderr, _JsonStream)
