"""The command ``penstock``."""

from transports.cli.main import main

__all__ = ["main"]
