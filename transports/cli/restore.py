"""``penstock restore``: restores a log or a store from its backup."""

import argparse
from pathlib import Path

from publishers.backups import restore
from transports.cli.arguments import ArgumentParser
from transports.cli.backup import CODES, report
from transports.cli.progress import progress_bar
from transports.cli.source import check_directory

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Verifies a backup, copies it to where it can be opened for writing, and verifies the copy. Positions that clients have "
        "kept of what the backup does not hold are refused by name from the next opening for writing on."
    )
    parser.epilog = CODES
    parser.value("backup", "BACKUP", "directory of a backup")
    parser.value("directory", "DIR", "empty or missing directory")
    parser.flag(
        "--replace", "rename DIR if it is not empty; its new name is printed, and nothing in it is lost"
    )
    parser.json()


def run(chosen: argparse.Namespace) -> int:
    """Restores the backup and prints a summary."""
    check_directory(chosen.backup)
    check_directory(chosen.directory)
    with progress_bar(f"restore {Path(chosen.directory).name}") as progress:
        done = restore(chosen.backup, chosen.directory, replace=chosen.replace, progress=progress)
    return report(chosen, done)
