"""``penstock slot``: the positions that a log keeps for consumers."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from publishers.log.start import Since
from publishers.model.position import Position, PositionToken
from publishers.slots.errors import NoSuchSlot
from publishers.slots.state import SlotStatistics
from transports.cli.arguments import PLACES, ArgumentParser
from transports.cli.criteria import add_criteria, criteria_of
from transports.cli.http import add_token
from transports.cli.output import fields, lag_text, show, table
from transports.cli.remote import ask_remote
from transports.cli.source import existing, followed, url_of
from transports.client.remote_slots import RemoteSlots
from transports.codec.slots import SlotInfo
from transports.codec.starts import start_of_text
from transports.codec.stored import stored_slots_json

__all__ = ["add_arguments"]

_T = TypeVar("_T")
_DONE: Final = 0
_ACTIONS: Final = {
    "pause": ("paused", "is paused"),
    "resume": ("resumed", "is resumed"),
    "drop": ("dropped", "is dropped"),
}
_HEADS: Final = ("NAME", "PLACE", "BEHIND", "GENERATION", "STATE")


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the commands."""
    parser.allow_abbrev = False  # else argparse expands a subcommand's --log to an option of the parent
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(commands, "list var/orders", "list the slots of a log, also beside its owner, or of a server", _list)
    _add(
        commands,
        "info var/orders stock",
        "show one slot, also beside its owner, or of a server",
        _info,
        "NAME",
    )
    making = _add(
        commands,
        "create var/orders stock --entity-type order --since earliest",
        "create a slot",
        _create,
        "NAME",
    )
    making.value("--since", "PLACE", f"position of the slot: {PLACES}", default="latest")
    making.add_argument(
        "--granularity",
        choices=("transaction", "change"),
        default="transaction",
        help="whether its position may lie inside a transaction (transaction)",
    )
    making.flag("--paused", "it delivers nothing until it is resumed")
    add_criteria(making)
    seeking = _add(
        commands,
        "seek var/orders stock 42",
        "move a slot that no consumer has open, even if it is lost",
        _seek,
        "NAME",
    )
    seeking.value("place", "PLACE", PLACES)
    _add(
        commands,
        "pause var/orders stock",
        "pause a slot: it delivers nothing until it is resumed",
        partial(_do, "pause"),
        "NAME",
    )
    _add(commands, "resume var/orders stock", "resume a slot", partial(_do, "resume"), "NAME")
    _add(
        commands,
        "drop var/orders stock",
        "drop a slot that no consumer has open",
        partial(_do, "drop"),
        "NAME",
    )


def _add(commands: Any, example: str, what: str, run: Any, *names: str) -> ArgumentParser:
    name = example.partition(" ")[0]
    parser: ArgumentParser = commands.add_parser(
        name, help=what, description=what, example=f"penstock slot {example}"
    )
    parser.value("directory", "URL|DIR", "http://host:port/ of a server, or the directory of a log or store")
    for one in names:
        parser.value(one.lower(), one, "name of a slot")
    parser.log_name()
    parser.json()
    add_token(parser)
    parser.set_defaults(command=run)
    return parser


def _list(chosen: argparse.Namespace) -> int:
    if (url := url_of(chosen.directory)) is not None:
        found = [_seen(one) for one in _afar(chosen, url, lambda slots: slots.list())]
    else:
        with followed(chosen.directory, chosen.log) as log:
            found = stored_slots_json(log)
    show(chosen, {"slots": found}, table([_HEADS, *map(_row, found)]) if found else ["no slots yet"])
    return _DONE


def _info(chosen: argparse.Namespace) -> int:
    if (url := url_of(chosen.directory)) is not None:
        info = _seen(_afar(chosen, url, lambda slots: slots.info(chosen.name)))
    else:
        with followed(chosen.directory, chosen.log) as log:
            stored = {one["name"]: one for one in stored_slots_json(log)}
        if chosen.name not in stored:
            raise NoSuchSlot(chosen.name, stored)
        info = stored[chosen.name]
    show(chosen, info, fields({**info, "lag": lag_text(info["lag"])}))
    return _DONE


def _create(chosen: argparse.Namespace) -> int:
    since = start_of_text("--since", chosen.since)
    if (url := url_of(chosen.directory)) is not None:
        make = partial(_create_afar, chosen=chosen, since=since)
        place = _place(_afar(chosen, url, make))
    else:
        with existing(chosen) as log:
            place = log.slots.create(
                chosen.name,
                criteria_of(chosen),
                since=since,
                granularity=chosen.granularity,
                paused=chosen.paused,
            ).position
    document = {"created": chosen.name, "position": str(place)}
    show(chosen, document, [f"slot {chosen.name} is created at {place}"])
    return _DONE


def _create_afar(slots: RemoteSlots, *, chosen: argparse.Namespace, since: Since) -> Awaitable[SlotInfo]:
    return slots.create(
        chosen.name,
        criteria_of(chosen),
        since=since,
        granularity=chosen.granularity,
        paused=chosen.paused,
    )


def _seek(chosen: argparse.Namespace) -> int:
    wanted = start_of_text("PLACE", chosen.place)
    moved: SlotInfo | SlotStatistics
    if (url := url_of(chosen.directory)) is not None:
        moved = _afar(chosen, url, lambda slots: slots.seek(chosen.name, wanted))
        place = _place(moved)
    else:
        with existing(chosen) as log:
            moved = log.slots.seek(chosen.name, wanted)
        place = moved.position
    document = {"moved": moved.name, "position": str(place), "generation": moved.generation}
    show(chosen, document, [f"slot {moved.name} is at {place} now"])
    return _DONE


def _do(action: str, chosen: argparse.Namespace) -> int:
    """Runs an operation that needs only the name of a slot."""
    if (url := url_of(chosen.directory)) is not None:
        _afar(chosen, url, lambda slots: getattr(slots, action)(chosen.name))
    else:
        with existing(chosen) as log:
            getattr(log.slots, action)(chosen.name)
    done, says = _ACTIONS[action]
    show(chosen, {done: chosen.name}, [f"slot {chosen.name} {says}"])
    return _DONE


def _afar(chosen: argparse.Namespace, url: str, ask: Callable[[RemoteSlots], Awaitable[_T]]) -> _T:
    """Runs a request against the slots of a server, and returns the reply."""
    return ask_remote(
        chosen, url, lambda remote: ask(remote.slots if chosen.log is None else remote.slots.of(chosen.log))
    )


def _place(info: SlotInfo) -> Position:
    return PositionToken.parse(info.cursor).position


def _seen(info: SlotInfo) -> dict[str, Any]:
    """The state of a slot from its server, which also knows what the slot is doing."""
    plain: dict[str, Any] = msgspec.to_builtins(info)
    return {"name": info.name, "place": str(_place(info)), **plain}


def _row(row: dict[str, Any]) -> Sequence[str]:
    marks = ", ".join(mark for mark in ("paused", "stored") if row.get(mark))
    state = row["state"] + (f" ({marks})" if marks else "")
    behind = lag_text(row["lag"], "versions")
    return row["name"], row["place"], behind, str(row["generation"]), state
