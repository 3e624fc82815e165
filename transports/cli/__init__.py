"""The command ``penstock``."""

from transports.cli.command import main

__all__ = ["main"]
