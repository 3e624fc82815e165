"""``penstock slot``: the positions that a log keeps for consumers."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from publishers.criteria.criteria import Criteria
from publishers.model.position import Position, PositionToken
from publishers.slots.errors import NoSuchSlot
from transports.cli.arguments import PLACES, ArgumentParser
from transports.cli.criteria import add_criteria, criteria_of
from transports.cli.http import add_token
from transports.cli.output import fields, lag_text, show, table
from transports.cli.remote import carry_out
from transports.cli.source import followed, url_of
from transports.codec.slots import SlotInfo
from transports.codec.starts import start_json, start_of_text
from transports.codec.stored import stored_slots_json
from transports.operations.operation import summary
from transports.operations.slots import (
    SLOTS,
    CreateSlot,
    ListSlots,
    SeekSlot,
    ShowSlot,
    SlotOperation,
)

__all__ = ["add_arguments"]

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
    for do, operation in SLOTS.operations.items():
        if operation.__struct_fields__ == SlotOperation.__struct_fields__ and do != "info":
            _add(commands, f"{do} var/orders stock", summary(operation), partial(_do, do), "NAME")


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
    if url_of(chosen.directory) is not None:
        found = [_seen(one) for one in carry_out(chosen, ListSlots(log=chosen.log))]
    else:
        with followed(chosen.directory, chosen.log) as log:
            found = stored_slots_json(log)
    show(chosen, {"slots": found}, table([_HEADS, *map(_row, found)]) if found else ["no slots yet"])
    return _DONE


def _info(chosen: argparse.Namespace) -> int:
    if url_of(chosen.directory) is not None:
        (found,) = carry_out(chosen, ShowSlot(log=chosen.log, name=chosen.name))
        info = _seen(found)
    else:
        with followed(chosen.directory, chosen.log) as log:
            stored = {one["name"]: one for one in stored_slots_json(log)}
        if chosen.name not in stored:
            raise NoSuchSlot(chosen.name, stored)
        info = stored[chosen.name]
    show(chosen, info, fields({**info, "lag": lag_text(info["lag"])}))
    return _DONE


def _create(chosen: argparse.Namespace) -> int:
    criteria = criteria_of(chosen)
    (made,) = carry_out(
        chosen,
        CreateSlot(
            log=chosen.log,
            name=chosen.name,
            criteria=None if criteria is None else Criteria.of(criteria).to_json(),
            granularity=chosen.granularity,
            paused=chosen.paused,
            **start_json(start_of_text("--since", chosen.since)),
        ),
    )
    document = {"created": chosen.name, "position": str(_place(made))}
    show(chosen, document, [f"slot {chosen.name} is created at {_place(made)}"])
    return _DONE


def _seek(chosen: argparse.Namespace) -> int:
    where = start_json(start_of_text("PLACE", chosen.place))
    (moved,) = carry_out(chosen, SeekSlot(log=chosen.log, name=chosen.name, **where))
    document = {"moved": moved.name, "position": str(_place(moved)), "generation": moved.generation}
    show(chosen, document, [f"slot {moved.name} is at {_place(moved)} now"])
    return _DONE


def _do(do: str, chosen: argparse.Namespace) -> int:
    """Carries out an operation that needs only the name of a slot."""
    operation: Any = SLOTS.operations[do]
    carry_out(chosen, operation(log=chosen.log, name=chosen.name))
    done, says = _ACTIONS.get(do, (do, f"was told to {do}"))
    show(chosen, {done: chosen.name}, [f"slot {chosen.name} {says}"])
    return _DONE


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
