"""Options of every command for the log lines on standard error."""

import argparse
import logging
import sys
from typing import Final, TextIO

from transports.telemetry.lines import ACCESS, JsonLines, Repeats, TextLines

__all__ = ["add_arguments", "begin", "end", "say"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_COMMAND: Final = logging.getLogger("penstock.command")
_ROOTS: Final = ("penstock", "flow", "publishers", "transports")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("lines on standard error")
    group.add_argument("--log-format", choices=("text", "json"), help="as text, or as one JSON object a line")
    group.add_argument(
        "--log-level", choices=_LEVELS, help="least important lines to be written (default: warning)"
    )


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
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonLines() if kind == "json" else TextLines())
    handler.addFilter(Repeats())
    for name in _ROOTS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel((level or "warning").upper())
    logging.getLogger(ACCESS).setLevel(logging.INFO if access else logging.CRITICAL)


class _Handler(logging.StreamHandler[TextIO]):
    """The handler of this command."""


def end() -> None:
    """Undoes ``begin``, for a program that runs several commands."""
    for name in (*_ROOTS, ACCESS):
        logger = logging.getLogger(name)
        for handler in [one for one in logger.handlers if isinstance(one, _Handler)]:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    logging.getLogger(ACCESS).setLevel(logging.NOTSET)


def say(error: object, code: int) -> None:
    """Writes the error that ends a command: as JSON if requested, otherwise as one plain line."""
    text = " ".join(str(error).split())
    handlers = [one for one in logging.getLogger("penstock").handlers if isinstance(one, _Handler)]
    if any(isinstance(one.formatter, JsonLines) for one in handlers):
        _COMMAND.error(text, extra={"data": {"code": code, "error": type(error).__name__}})
    else:
        print(f"penstock: {text}", file=sys.stderr)
