"""Options that select changes, and their criteria."""

import argparse

from publishers.criteria.criteria import Criteria, Criterion
from transports.cli.arguments import ArgumentParser

__all__ = ["add_criteria", "criteria_of"]

_OPTIONS = (
    ("entity-type", "entity type", "changes of this entity type"),
    ("key", "key", "changes of this key"),
    ("key-glob", "glob", "keys like this, with * and ? as in file names"),
    ("key-pattern", "regex", "keys that this regular expression matches as a whole"),
    ("operation", "operation", "this operation, such as UPSERT"),
    ("changed", "name", "changes that say they touched this field"),
)


def add_criteria(parser: ArgumentParser) -> None:
    """Adds the options."""
    for name, metavar, what in _OPTIONS:
        parser.each(f"--{name}", metavar.upper().replace(" ", "_"), f"only {what}")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="EXPR",
        help="only where this holds, such as 'total > 10', 'status in [\"OPEN\",\"PAID\"]', 'note is null' or "
        "'before:total <= 10'; repeatable, and then all must hold",
    )
    parser.add_argument(
        "--annotation",
        action="append",
        default=[],
        metavar="EXPR",
        help="only of transactions whose annotations fulfil this, such as 'backfill not exists'; repeatable, and then all must hold",
    )
    parser.each(
        "--transition", "MOVE", "only what ENTERED, LEFT, STAYED in or MAYBE_LEFT the filter that --where is"
    )


def criteria_of(chosen: argparse.Namespace) -> Criteria:
    """Returns the criteria.

    Raises:
        InvalidCriteria: If the value of an option is invalid.
    """
    return Criteria.of(
        Criterion(
            entity_types=chosen.entity_type,
            keys=chosen.key,
            key_globs=chosen.key_glob,
            key_patterns=chosen.key_pattern,
            operations=[operation.upper() for operation in chosen.operation],
            changed=chosen.changed,
            where=chosen.where,
            transitions=[transition.upper() for transition in chosen.transition],
            annotations=chosen.annotation,
        )
    )
