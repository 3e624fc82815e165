"""``penstock slot``: the places that a log keeps for consumers."""

import argparse
from collections.abc import Sequence
from typing import Any, Final

from publishers.log.changelog import ChangeLog
from publishers.slots.errors import NoSuchSlot
from publishers.slots.inspection import StoredSlot, stored_slots
from publishers.slots.state import SlotState
from publishers.wal import RealFileSystem
from transports.cli.arguments import ArgumentParser
from transports.cli.criteria import add_criteria, criteria_of
from transports.cli.output import show
from transports.cli.places import PLACES, age_of, existing, seconds_text, table
from transports.cli.source import followed
from transports.codec.starts import start_of_text

__all__ = ["add_arguments"]

_DONE: Final = 0
_HEADS: Final = ("NAME", "PLACE", "BEHIND", "GENERATION", "STATE")


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the commands."""
    parser.allow_abbrev = False  # else it takes the --log of a command for the beginning of one of its own
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "list var/orders", "the slots of a log, also beside its owner", _list)
    _add(commands, "info var/orders stock", "one slot, likewise", _info, "NAME")
    making = _add(
        commands,
        "create var/orders stock --entity-type order --since earliest",
        "make a slot",
        _create,
        "NAME",
    )
    making.value("--since", "PLACE", f"where it begins: {PLACES}", default="latest")
    making.add_argument(
        "--granularity",
        choices=("transaction", "change"),
        default="transaction",
        help="whether its place may stand inside a transaction",
    )
    add_criteria(making)
    seeking = _add(
        commands,
        "seek var/orders stock 42",
        "move a slot that nobody has open, also one that is lost",
        _seek,
        "NAME",
    )
    seeking.value("place", "PLACE", PLACES)
    _add(commands, "drop var/orders stock", "drop a slot that nobody has open", _drop, "NAME")


def _add(commands: Any, example: str, what: str, run: Any, *names: str) -> ArgumentParser:
    name = example.partition(" ")[0]
    parser: ArgumentParser = commands.add_parser(
        name, help=what, description=what, example=f"penstock slot {example}"
    )
    parser.directory()
    for one in names:
        parser.value(one.lower(), one, "name of a slot")
    parser.log_name("store")
    parser.json()
    parser.set_defaults(command=run)
    return parser


def _list(chosen: argparse.Namespace) -> int:
    with followed(chosen.directory, chosen.log) as log:
        found = [_told(log, one) for one in _stored(log)]
    show(chosen, {"slots": found}, table([_HEADS, *map(_row, found)]) if found else ["no slots yet"])
    return _DONE


def _info(chosen: argparse.Namespace) -> int:
    with followed(chosen.directory, chosen.log) as log:
        stored = {one.record.name: one for one in _stored(log)}
        if chosen.name not in stored:
            raise NoSuchSlot(chosen.name, stored)
        told = _told(log, stored[chosen.name])
    lag = told["lag"]
    lines = [f"{name}: {value}" for name, value in told.items() if name != "lag"]
    show(chosen, told, [*lines, f"lag: {lag['versions']} versions, {seconds_text(lag['seconds'])}"])
    return _DONE


def _create(chosen: argparse.Namespace) -> int:
    since = start_of_text("--since", chosen.since)
    with existing(chosen) as log:
        made = log.slots.create(chosen.name, criteria_of(chosen), start=since, granularity=chosen.granularity)
    show(
        chosen,
        {"created": made.name, "position": str(made.position)},
        [f"slot {made.name} is there, at {made.position}"],
    )
    return _DONE


def _seek(chosen: argparse.Namespace) -> int:
    place = start_of_text("PLACE", chosen.place)
    with existing(chosen) as log:
        moved = log.slots.reset(chosen.name, place)
    document = {"moved": moved.name, "position": str(moved.position), "generation": moved.generation}
    show(chosen, document, [f"slot {moved.name} is at {moved.position} now"])
    return _DONE


def _drop(chosen: argparse.Namespace) -> int:
    with existing(chosen) as log:
        log.slots.drop(chosen.name)
    show(chosen, {"dropped": chosen.name}, [f"slot {chosen.name} is dropped"])
    return _DONE


def _stored(log: ChangeLog) -> list[StoredSlot]:
    return stored_slots(RealFileSystem(), log.path, log.log_id, log.position_of)


def _told(log: ChangeLog, slot: StoredSlot) -> dict[str, Any]:
    record, position = slot.record, slot.position
    good = slot.state is SlotState.FREE
    return {
        "name": record.name,
        "place": str(position),
        "generation": record.generation,
        "state": "good" if good else slot.state.value,
        "paused": record.paused,
        "granularity": record.granularity,
        "criteria": record.criteria,
        "cursor": record.place,
        "lag": {
            "versions": max(log.head.version - position.version, 0),
            "seconds": age_of(log, position.version) if good else None,
        },
    }


def _row(told: dict[str, Any]) -> Sequence[str]:
    state = told["state"] + (" (paused)" if told["paused"] else "")
    lag = told["lag"]
    behind = f"{lag['versions']} versions, {seconds_text(lag['seconds'])}"
    return told["name"], told["place"], behind, str(told["generation"]), state
