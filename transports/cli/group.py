"""``penstock group``: groups of consumers that share the changes of a log, in its directory or at a server, and their dead letters."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from publishers.criteria.criteria import Criteria
from publishers.errors import InvalidOption
from publishers.groups.dead_letters import read_letter
from publishers.groups.delivery import DeadLetter
from publishers.groups.errors import NoSuchGroup
from publishers.groups.inspection import StoredGroup
from publishers.groups.record import GROUPS_NAME
from publishers.groups.state import GroupState
from publishers.log.changelog import ChangeLog
from publishers.log.dead_log import DeadLetterLog
from publishers.model.change import time_of
from publishers.model.position import Position, PositionToken
from publishers.store.log_entries import SYSTEM
from transports.cli.arguments import PLACES, ArgumentParser
from transports.cli.criteria import add_criteria, criteria_of
from transports.cli.http import add_token, ask, token_of, trust_of
from transports.cli.output import fields, lag_text, print_json, show, table
from transports.cli.remote import ask_remote, carry_out
from transports.cli.source import existing, followed, url_of
from transports.client.remote_groups import RemoteGroups
from transports.codec.groups import letter_json
from transports.codec.starts import start_json, start_of_text
from transports.codec.stored import stored_groups_json, stored_groups_of
from transports.errors import LogNotFound
from transports.operations.groups import (
    GROUPS,
    CreateGroup,
    GroupOperation,
    ListPending,
    ReleaseGroup,
    ResetGroup,
)
from transports.operations.operation import summary

__all__ = ["add_arguments"]

_T = TypeVar("_T")


_DONE: Final = 0
_HEADS: Final = ("NAME", "FLOOR", "BEHIND", "NOT DONE", "DEAD", "STATE")
_MORE: Final = "the log has more groups than the {} that the server lists; the command lists all on the directory of the log"
_ACTIONS: Final = {
    "pause": ("paused", "is paused: it delivers nothing until it is resumed"),
    "resume": ("resumed", "is resumed"),
    "drop": ("dropped", "is dropped"),
}
_OPTIONS: Final = {
    "--ordering": ("key", "none", "global"),
    "--ack": ("explicit", "all", "transaction", "none"),
}


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the commands."""
    parser.allow_abbrev = False  # else argparse expands a subcommand's --log to an option of the parent
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add(
        commands,
        "list var/orders",
        "list the groups of a log, also beside its owner, or of a server",
        _list,
    )
    _add(
        commands,
        "info var/orders pickers",
        "show one group, also beside its owner, or of a server",
        _info,
        "NAME",
    )
    pending = _add(
        commands,
        "pending var/orders pickers",
        "list pending deliveries, also beside the owner; a server also shows their consumers",
        _pending,
        "NAME",
    )
    pending.add_argument("--limit", type=int, default=100, metavar="N", help="most deliveries (100)")
    claiming = _add(
        commands,
        "claim http://127.0.0.1:8765/ pickers --min-idle 60",
        "release pending deliveries: each is due at once, for every consumer (in Python, 'release' of the group; 'claim' there takes deliveries for one consumer)",
        _claim,
        "NAME",
    )
    claiming.add_argument(
        "--min-idle", type=float, default=0.0, metavar="SECONDS", help="only deliveries made so long ago (0)"
    )
    making = _add(
        commands,
        "create var/orders pickers --entity-type order --since earliest",
        "create a group",
        _create,
        "NAME",
    )
    making.value("--since", "PLACE", f"position of the group: {PLACES}", default="latest")
    for option, choices in _OPTIONS.items():
        making.add_argument(option, choices=choices, default=choices[0], help=f"as in Python ({choices[0]})")
    making.add_argument(
        "--max-deliver", type=int, metavar="N", help="deliveries of a change before it becomes a dead letter"
    )
    add_criteria(making)
    moving = _add(
        commands, "reset var/orders pickers 42", "move a group, also one that is lost", _reset, "NAME"
    )
    moving.value("place", "PLACE", PLACES)
    for do, operation in GROUPS.operations.items():
        if operation.__struct_fields__ == GroupOperation.__struct_fields__ and do != "info":
            _add(commands, f"{do} var/orders pickers", summary(operation), partial(_do, do), "NAME")
    _add_dead(commands)


def _add_dead(commands: Any) -> None:
    dead: ArgumentParser = commands.add_parser(
        "dead",
        help="the dead letters of a group",
        description="the dead letters of a group: changes that failed too often, or that a consumer gave up",
        example="penstock group dead inspect var/orders pickers",
    )
    dead.allow_abbrev = False
    letters = dead.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, what, run in (
        ("inspect", "print dead letters as JSON lines, also beside the owner of the log", _inspect),
        ("replay", "print dead letters as JSON lines, and discard each printed one", _replay),
        ("discard", "discard dead letters", _discard),
    ):
        each = _add(letters, f"{name} var/orders pickers", what, run, "NAME", within="group dead")
        each.add_argument(
            "positions",
            nargs="*",
            metavar="POSITION",
            help="positions of letters, such as 42:1; all letters if left out",
        )


def _add(
    commands: Any,
    example: str,
    what: str,
    run: Callable[[argparse.Namespace], int],
    *names: str,
    within: str = "group",
) -> ArgumentParser:
    parser: ArgumentParser = commands.add_parser(
        example.partition(" ")[0], help=what, description=what, example=f"penstock {within} {example}"
    )
    parser.value("directory", "URL|DIR", "http://host:port/ of a server, or the directory of a log or store")
    add_token(parser)
    for one in names:
        parser.value(one.lower(), one, "name of a group")
    parser.log_name("server or store")
    parser.json()
    parser.set_defaults(command=run)
    return parser


def _list(chosen: argparse.Namespace) -> int:
    found, complete = _found(chosen)
    rows = [_HEADS, *map(_row, found)]
    show(chosen, {"groups": found}, table(rows) if found else ["the log has no groups"])
    if not complete:
        print(f"penstock: {_MORE.format(len(found))}", file=sys.stderr)
    return _DONE


def _found(chosen: argparse.Namespace) -> tuple[list[dict[str, Any]], bool]:
    """Returns the groups, and whether these are all."""
    if (url := url_of(chosen.directory)) is not None:
        return _groups_of(chosen, url)
    with followed(chosen.directory, chosen.log) as log:
        return stored_groups_json(log), True


def _info(chosen: argparse.Namespace) -> int:
    found, complete = _found(chosen)
    known = {one["name"]: one for one in found}
    if chosen.name not in known and not complete:
        raise ConnectionError(
            f"{chosen.name!r} is not among the groups that the server lists; {_MORE.format(len(found))}"
        )
    if chosen.name not in known:
        raise NoSuchGroup(chosen.name, known)
    info = known[chosen.name]
    show(chosen, info, fields({**info, "lag": lag_text(info["lag"])}))
    return _DONE


def _pending(chosen: argparse.Namespace) -> int:
    if chosen.limit < 1:
        raise InvalidOption("--limit", chosen.limit, "a whole number from 1")
    if url_of(chosen.directory) is not None:
        info = carry_out(chosen, ListPending(log=chosen.log, name=chosen.name, limit=chosen.limit))
        document = {"group": chosen.name, "total": info["total"], "pending": info["rows"]}
        lines = [
            f"{PositionToken.parse(row['at']).position}  {row['consumer']}, delivered {row['count']} times, {row['idleMs'] / 1000:.0f} s ago"
            for row in info["rows"]
        ]
    else:
        with followed(chosen.directory, chosen.log) as log:
            delivered = [row for row in _one(log, chosen.name).record.opens if row.count]
        rows = [
            {"position": str(row.position), "count": row.count, "first_at": time_of(row.first_us).isoformat()}
            for row in delivered[: chosen.limit]
        ]
        document = {"group": chosen.name, "total": len(delivered), "pending": rows}
        lines = [
            f"{row['position']}  delivered {row['count']} times, first {row['first_at']}" for row in rows
        ]
    show(chosen, document, lines or ["no delivery is pending"])
    return _DONE


def _claim(chosen: argparse.Namespace) -> int:
    if not 0 <= chosen.min_idle < float("inf"):
        raise InvalidOption("--min-idle", chosen.min_idle, "seconds from 0")
    if url_of(chosen.directory) is None:  # no other process knows the consumers
        raise InvalidOption("directory", chosen.directory, "the URL of the server that owns the log")
    idle = round(chosen.min_idle * 1000)
    count = carry_out(chosen, ReleaseGroup(log=chosen.log, name=chosen.name, min_idle_ms=idle))["count"]
    show(chosen, {"claimed": count}, [f"{count} deliveries are due now, for every consumer"])
    return _DONE


def _create(chosen: argparse.Namespace) -> int:
    criteria = criteria_of(chosen)
    options = {"ordering": chosen.ordering, "ack": chosen.ack, "max_deliver": chosen.max_deliver}
    made = carry_out(
        chosen,
        CreateGroup(
            log=chosen.log,
            name=chosen.name,
            criteria=None if criteria is None else Criteria.of(criteria).to_json(),
            options=options,
            **start_json(start_of_text("--since", chosen.since)),
        ),
    )
    document = {"created": chosen.name, "position": str(_place(made))}
    show(chosen, document, [f"group {chosen.name} is created at {_place(made)}"])
    return _DONE


def _reset(chosen: argparse.Namespace) -> int:
    where = start_json(start_of_text("PLACE", chosen.place))
    moved = carry_out(chosen, ResetGroup(log=chosen.log, name=chosen.name, **where))
    document = {"moved": chosen.name, "position": str(_place(moved)), "generation": moved["generation"]}
    show(chosen, document, [f"group {chosen.name} is moved to {_place(moved)}"])
    return _DONE


def _do(do: str, chosen: argparse.Namespace) -> int:
    """Carries out an operation that needs only the name of a group."""
    operation: Any = GROUPS.operations[do]
    told = carry_out(chosen, operation(log=chosen.log, name=chosen.name))
    done, says = _ACTIONS.get(do, (do, f"was told to {do}"))
    changed = {"changed": told["changed"]} if "changed" in told else {}
    show(chosen, {done: chosen.name, **changed}, [f"group {chosen.name} {says}"])
    return _DONE


def _inspect(chosen: argparse.Namespace) -> int:
    if (url := url_of(chosen.directory)) is not None:
        letters = _ask_groups(chosen, url, partial(_letters, name=chosen.name))
    else:
        letters = _stored_letters(chosen)
    for one in _wanted(chosen, letters):
        print_json(one)
    return _DONE


def _stored_letters(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    with followed(chosen.directory, chosen.log) as log:
        _one(log, chosen.name)
        path = log.path / GROUPS_NAME / f"{chosen.name}.dead"
        letters: list[DeadLetter] = []
        if path.is_dir():
            with ChangeLog.open(path, read_only=True) as dead:
                letters = sorted(
                    map(read_letter, DeadLetterLog(dead).letters().values()), key=lambda one: one.position
                )
    return list(map(letter_json, letters))


def _replay(chosen: argparse.Namespace) -> int:
    def handle(letter: dict[str, Any]) -> None:
        print_json(letter)
        sys.stdout.flush()  # a letter that cannot be written is not discarded

    async def afar(groups: RemoteGroups) -> None:
        for letter in _wanted(chosen, await _letters(groups, chosen.name)):
            handle(letter)
            await groups.discard(chosen.name, [letter["position"]])

    if (url := url_of(chosen.directory)) is not None:
        _ask_groups(chosen, url, afar)
    else:
        with existing(chosen) as log:
            dead = log.groups.open(chosen.name).dead
            dead.replay(lambda letter: handle(letter_json(letter)), _positions(chosen, dead.inspect()))
    return _DONE


def _discard(chosen: argparse.Namespace) -> int:
    async def afar(groups: RemoteGroups) -> int:
        wanted = _wanted(chosen, await _letters(groups, chosen.name))
        return await groups.discard(chosen.name, [one["position"] for one in wanted])

    if (url := url_of(chosen.directory)) is not None:
        count = _ask_groups(chosen, url, afar)
    else:
        with existing(chosen) as log:
            dead = log.groups.open(chosen.name).dead
            count = dead.discard(_positions(chosen, dead.inspect()))
    show(chosen, {"discarded": count}, [f"{count} dead letters are discarded"])
    return _DONE


async def _letters(groups: RemoteGroups, name: str) -> list[dict[str, Any]]:
    return [letter async for letter in groups.dead_letters(name)]


def _wanted(chosen: argparse.Namespace, letters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    known = {one["position"] for one in letters}
    for position in chosen.positions:
        if position not in known:
            raise InvalidOption("POSITION", position, "that of a dead letter, as 'inspect' prints it")
    return [one for one in letters if not chosen.positions or one["position"] in chosen.positions]


def _positions(chosen: argparse.Namespace, letters: Sequence[DeadLetter]) -> list[Position]:
    wanted = {one["position"] for one in _wanted(chosen, list(map(letter_json, letters)))}
    return [one.position for one in letters if str(one.position) in wanted]


def _place(info: Mapping[str, Any]) -> Position:
    return PositionToken.parse(info["cursor"]).position


def _one(log: ChangeLog, name: str) -> StoredGroup:
    known = {one.record.name: one for one in stored_groups_of(log)}
    if name not in known:
        raise NoSuchGroup(name, known)
    return known[name]


def _row(row: dict[str, Any]) -> Sequence[str]:
    behind = lag_text(row["lag"], "versions")
    return row["name"], row["floor"], behind, str(row["notDone"]), str(row["dead"]), row["state"]


def _groups_of(chosen: argparse.Namespace, url: str) -> tuple[list[dict[str, Any]], bool]:
    """Returns the groups that a server lists of a log, and whether these are all.

    Groups of the owner lack what only their journals hold; groups of a server that follows the log are as for a directory.

    Raises:
        ConnectionError: If the server does not answer with statistics, shows this client no groups, or cannot read the journals.
        LogNotFound: If it has no log of that name, or if it has several and no name is given.
    """
    statistics = ask(url, "/statistics", "statistics", token_of(chosen), trust_of(chosen, url))
    logs = None if statistics is None else statistics.get("logs")
    if not isinstance(logs, dict):
        raise ConnectionError(f"{url} does not answer with statistics of logs")
    known = [name for name in logs if name != SYSTEM]
    name = known[0] if chosen.log is None and len(known) == 1 else chosen.log
    if name not in logs:
        raise LogNotFound(name, known)
    try:
        return _groups_json(url, logs[name])
    except (LookupError, TypeError, AttributeError):
        raise ConnectionError(f"{url} answers with statistics of another version") from None


def _ask_groups(chosen: argparse.Namespace, url: str, ask_for: Callable[[RemoteGroups], Awaitable[_T]]) -> _T:
    """Runs a request against the groups of a server, and returns the reply.

    Raises:
        RemoteError: If the server refuses it, for example because of the grant.
    """
    return ask_remote(
        chosen,
        url,
        lambda remote: ask_for(remote.groups if chosen.log is None else remote.groups.of(chosen.log)),
    )


def _groups_json(url: str, log: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    if (failure := log.get("storedGroupsFailure") or log.get("failure")) is not None:
        raise ConnectionError(f"{url} cannot read the groups of the log: {failure}")
    if "storedGroups" in log:  # the server follows the log
        return list(log["storedGroups"]), not log["storedGroupsMore"]
    if "consumerGroups" not in log:
        raise ConnectionError(
            f"{url} shows the groups of a log to principals that may operate it; ask with such a token"
        )
    groups = log["consumerGroups"]
    return [_group_json(name, one) for name, one in sorted(groups.items())], len(groups) == log[
        "consumerGroupCount"
    ]


def _group_json(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    forked = group["state"] == GroupState.FORKED.value  # its versions are those of another history
    waiting = {what: group[what] for what in ("pending", "due", "parked", "dying")}
    return {
        "name": name,
        **{end: f"{group[end]['version']}:{group[end]['index']}" for end in ("floor", "head")},
        "generation": group["generation"],
        "state": group["state"],
        "notDone": sum(waiting.values()),
        "delivered": group["pending"] + group["due"],
        "dead": group["dead"],
        "lost": group["lost"],
        **waiting,
        "acked": group["acked"],
        "redelivered": group["redelivered"],
        "consumers": group["consumerNames"],
        "lastError": group["lastError"],
        "nextSeconds": group["nextSeconds"],
        "cursor": group["head"]["cursor"],
        "lag": {unit: None if forked else group["lag"][unit] for unit in ("versions", "seconds")},
    }
