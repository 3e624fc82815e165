"""Which operation is offered where, as ``docs/operations.md`` shows it: ``python -m tests.transports.operations.page`` writes it."""

from pathlib import Path
from typing import Any, Final

from transports.operations.calls import CALLS
from transports.operations.operation import LogOperation, summary
from transports.operations.table import OPERATIONS

# ruff: noqa: T201 - it is a command, and printing is what it does

PAGE: Final = Path(__file__).parents[3] / "docs" / "operations.md"
PYTHON: Final = {
    "slot": "slots",
    "groups": "groups",
    "groups reset": "groups.seek",
    "groups dead": "groups.dead_letters",
    "schema": "schema",
}
"""What `RemoteLog` has for a message, or for an operation."""
COMMAND: Final = {
    "slot": "slot",
    "groups": "group",
    "groups release": "group claim",
    "groups dead": "group dead inspect",
    "groups discard": "group dead discard",
    "schema": "schema",
}
"""The subcommands of ``penstock``, likewise."""
REDIS: Final = {
    "groups create": "CDC.GROUP CREATE",
    "groups info": "CDC.GROUP INFO",
    "groups pending": "CDC.PENDING",
    "ack": "CDC.ACK",
    "nack": "CDC.NACK",
    "pending": "CDC.PENDING",
    "claim": "CDC.CLAIM",
}
GRAPHQL: Final = {
    "schema": "schema",
    "groups pending": "pendingDeliveries",
    "ack": "ackDeliveries",
    "ack_upto": "ackDeliveries(upto: true)",
    "nack": "nackDeliveries",
    "in_progress": "inProgressDeliveries",
    "term": "termDeliveries",
    "pending": "pendingDeliveries",
    "claim": "claimDeliveries",
}
JAVASCRIPT: Final = {"ack_upto": "ack(…, { upto: true })", "in_progress": "inProgress"}
WHY: Final = {
    "graphql": "GraphQL has what applications need to read and to consume; whoever administers slots and groups has the protocol, the clients and the command.",
    "http": "HTTP has appends, schemas and statistics; an order needs a connection that tells when it is done, and the command makes one.",
    "redis": "Redis clients keep their place themselves, or consume a group; of a group they have what a consumer needs.",
    "statistics": "The command reads `/statistics`, which needs `OPERATE`, and shows groups of a server that follows the log too.",
    "command": "A call belongs to a consumer that has joined, and a command has left before its deliveries are done.",
}
"""Why a face lacks an operation, or has another one."""

_HEAD: Final = """# Operations

Every question and every order that a client may send about a log, and over which face. This page is made of the table of which
the messages, the checks of permissions, the Python client and the commands are made too. Subscriptions, appends and history are
in [protocol](protocol.md), [GraphQL](graphql.md) and [writing](writing.md).

## Orders and questions

*needs* is the action that the [grant](security.md#what-each-may-do) of the client must have; beside it the grant names the slot or the group.
*follower* says whether a server that follows the log answers: as the owner has stored it.

"""
_CALLS: Final = """
## Calls of a consumer

A consumer that has [joined a group](protocol.md#groups) says these about deliveries; all need `CONSUME`, and no follower answers them.

"""


def name_of(operation: type[LogOperation[Any]]) -> str:
    """The message of an operation, with what its ``do`` says."""
    tag = operation.__struct_config__.tag
    return operation.message if tag is None else f"{operation.message} {tag}"


def python(name: str) -> str:
    """What `RemoteLog` has for an operation."""
    message, _, do = name.partition(" ")
    return PYTHON.get(name) or f"{PYTHON[message]}.{do}"


def command(name: str) -> str:
    """The subcommand for an operation."""
    message, _, do = name.partition(" ")
    return COMMAND.get(name) or f"{COMMAND[message]} {do}"


def javascript(name: str) -> str:
    """What penstock.js has for an operation."""
    message, _, do = name.partition(" ")
    return f'{message}s("{do}")' if message == "slot" else f'groups("{do}")' if do else "schema(…)"


def _cell(text: str | None, face: str = "") -> str:
    return f"no [{list(WHY).index(face) + 1}]" if text is None else f"`{text}`"


def orders() -> str:
    """The table of orders and questions."""
    lines = [
        "| message | what it does | needs | follower | Python | JavaScript | command | GraphQL | HTTP | Redis |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in OPERATIONS:
        name = name_of(one)
        cells = [
            f"`{name}`",
            summary(one).replace("``", "`"),
            f"`{one.action.name}`",
            "yes" if one.stored or one.action.name == "READ" else "no",
            _cell(python(name)),
            _cell(javascript(name)),
            _cell(f"penstock {command(name)}") + (" [4]" if name == "groups info" else ""),
            _cell(GRAPHQL.get(name), "graphql"),
            _cell("GET /schemas" if name == "schema" else None, "http"),
            _cell(REDIS.get(name), "redis"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def calls() -> str:
    """The table of the calls of a consumer."""
    lines = [
        "| `do` of `group` | what it does | Python | JavaScript | command | GraphQL | HTTP | Redis |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in CALLS.items():
        cells = [
            f"`{name}`",
            summary(one).replace("``", "`"),
            f"`{name}`",
            f"`{JAVASCRIPT.get(name, name)}`",
            _cell(None, "command"),
            _cell(GRAPHQL.get(name), "graphql"),
            _cell(None, "http"),
            _cell(REDIS.get(name), "redis"),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page as it is now."""
    why = "\n".join(f"{n}. {text}" for n, text in enumerate(WHY.values(), 1))
    return f"{_HEAD}{orders()}{_CALLS}{calls()}\n## What is missing, and why\n\n{why}\n"


if __name__ == "__main__":
    PAGE.write_text(written())
    print(f"wrote {len(OPERATIONS)} operations and {len(CALLS)} calls to {PAGE}")
