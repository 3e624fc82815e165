"""The table of commands: name, handler and number of arguments."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from transports.resp.arguments import CommandArguments
from transports.resp.client import RespClient
from transports.resp.errors import reply_of
from transports.resp.greeting import answer_client, authenticate, choose, echo, greet, inform, ping, quit_
from transports.resp.grouping import acknowledge, claim, group_, list_pending, refuse
from transports.resp.polling import poll
from transports.resp.port import RespPort
from transports.resp.replies import RespError, SimpleString, shown
from transports.resp.transacting import begin, discard, execute, keep

__all__ = ["COMMANDS", "QUICK", "RespCommand", "answer"]

_Answer = Callable[[RespPort, RespClient, CommandArguments], Awaitable[Any]]
QUICK: Final = frozenset(
    {b"CLIENT", b"COMMAND", b"DISCARD", b"ECHO", b"EXEC", b"INFO", b"MULTI", b"PING", b"SELECT"}
)
"""Commands that are answered at once, so that earlier replies may be sent together with theirs."""

_NAMES: Final = 64  # of commands in one question
_FREE: Final = frozenset({"AUTH", "HELLO", "QUIT"})
"""Commands that need no authentication."""

_AT_ONCE: Final = frozenset({"DISCARD", "EXEC", "MULTI", "QUIT"})
"""Commands that no transaction keeps."""


@dataclass(frozen=True, slots=True)
class RespCommand:
    """A command.

    Attributes:
        name: The name in upper case.
        run: The handler.
        arity: The number of arguments including the name; negative for a minimum, as in Redis.
        what: The summary.
    """

    name: str
    run: _Answer
    arity: int
    what: str

    @property
    def entry(self) -> list[Any]:
        """The entry of ``COMMAND``: name, arity, flags, first, last and step of keys, categories, tips, key specifications, subcommands."""
        free = ["fast", "no_auth"] if self.name in _FREE else ["readonly"]
        return [self.name.lower(), self.arity, list(map(SimpleString, free)), 0, 0, 0, [], [], [], []]


async def answer(port: RespPort, client: RespClient, words: list[bytes]) -> Any:
    """Returns the reply to a command; an error is a reply too."""
    name = words[0].upper().decode("ascii", "replace")
    command = COMMANDS.get(name)
    try:
        if name not in _FREE:
            await port.principal(client)
        if command is None:
            known = ", ".join(COMMANDS)
            raise RespError("ERR", f"unknown command {shown(words[0], 80)}, which must be one of {known}")
        if not (len(words) == command.arity or 0 < -command.arity <= len(words)):
            raise RespError("ERR", f"wrong number of arguments for '{name.lower()}' command")
        if client.collects and name not in _AT_ONCE:
            return keep(client, words, allowed=name not in _FREE)
        reply = await command.run(port, client, CommandArguments(name.lower(), words[1:]))
    except Exception as error:  # noqa: BLE001 - an error of one command is its reply, and affects nothing else
        reply = reply_of(error)
        port.errors[reply.code] += 1
        if client.transaction is not None:
            client.transaction.refuse()
    port.commands[name if command is not None else "UNKNOWN"] += 1
    return reply


async def _list_commands(_port: RespPort, _client: RespClient, given: CommandArguments) -> Any:
    """``COMMAND [COUNT | DOCS [name ...] | INFO [name ...]]``."""
    if not given.left:
        return [command.entry for command in COMMANDS.values()]
    word = given.raw("subcommand").upper()
    if given.left > _NAMES:
        raise RespError("ERR", f"COMMAND {shown(word)} takes at most {_NAMES} names, not {given.left}")
    names = [given.raw("name").upper().decode("ascii", "replace") for _ in range(given.left)]
    if word == b"COUNT" and not names:
        return len(COMMANDS)
    if word == b"INFO":
        found = (COMMANDS.get(name) for name in names or COMMANDS)
        return [None if one is None else one.entry for one in found]
    if word == b"DOCS":
        return {
            name.lower(): {"summary": COMMANDS[name].what, "group": "penstock"}
            for name in dict.fromkeys(names or COMMANDS)
            if name in COMMANDS
        }
    raise RespError("ERR", f"unknown subcommand {shown(word)} of COMMAND, which must be COUNT, INFO or DOCS")


COMMANDS: Final = {
    command.name: command
    for command in (
        RespCommand("AUTH", authenticate, -2, "Shows a token"),
        RespCommand("CDCPOLL", poll, -3, "Gives changes from a sequence number on"),
        RespCommand("CDC.POLL", poll, -3, "As CDCPOLL"),
        RespCommand("CDC.GROUP", group_, -2, "Makes groups, and gives their consumers changes"),
        RespCommand("CDC.ACK", acknowledge, -4, "Acknowledges deliveries"),
        RespCommand("CDC.NACK", refuse, -5, "Refuses deliveries"),
        RespCommand("CDC.PENDING", list_pending, -3, "Lists deliveries that are not acknowledged"),
        RespCommand("CDC.CLAIM", claim, -5, "Takes over deliveries of other consumers"),
        RespCommand("CLIENT", answer_client, -2, "Names the client"),
        RespCommand("COMMAND", _list_commands, -1, "Tells which commands there are"),
        RespCommand("DISCARD", discard, 1, "Drops the commands behind MULTI"),
        RespCommand("ECHO", echo, 2, "Gives back what was said"),
        RespCommand("EXEC", execute, 1, "Executes the commands behind MULTI, in their order"),
        RespCommand("HELLO", greet, -1, "Chooses the version of the protocol, and shows a token"),
        RespCommand("INFO", inform, -1, "Tells what the server is"),
        RespCommand("MULTI", begin, 1, "Keeps the following commands until EXEC"),
        RespCommand("PING", ping, -1, "Gives back PONG, or what was said"),
        RespCommand("QUIT", quit_, -1, "Closes the connection"),
        RespCommand("SELECT", choose, 2, "Takes database 0, which is the only one"),
    )
}
"""The commands by name."""
