"""``penstock version``: prints the version."""

import argparse

from transports.cli.arguments import ArgumentParser
from transports.server.version import version

__all__ = ["add_arguments", "run"]


def add_arguments(_: ArgumentParser) -> None:
    """Adds nothing."""


def run(_: argparse.Namespace) -> int:
    """Prints the version."""
    print(f"penstock {version()}")
    return 0
