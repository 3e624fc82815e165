"""Commands of connection setup: authentication, the protocol version, and information about the connection."""

from collections.abc import Callable
from typing import Any, Final

from transports.errors import Forbidden, Unauthenticated
from transports.resp.arguments import CommandArguments
from transports.resp.client import RespClient
from transports.resp.port import RespPort
from transports.resp.replies import RespError, SimpleString, shown
from transports.server.version import version

__all__ = ["answer_client", "authenticate", "choose", "echo", "greet", "inform", "ping", "quit_"]

_OK: Final = SimpleString("OK")
_DEFAULT: Final = "default"
_NAME: Final = 256
_SECTIONS: Final = 64  # in one question
_ALL_SECTIONS: Final = frozenset({b"all", b"default", b"everything"})
_OPEN: Final = "AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"


async def ping(_port: RespPort, _client: RespClient, given: CommandArguments) -> Any:
    """Returns PONG, or the argument."""
    if not given.left:
        return SimpleString("PONG")
    said = given.raw("message")
    given.done()
    return said


async def echo(_port: RespPort, _client: RespClient, given: CommandArguments) -> Any:
    """Returns the argument."""
    said = given.raw("message")
    given.done()
    return said


async def quit_(_port: RespPort, client: RespClient, _given: CommandArguments) -> Any:
    """Closes the connection behind the reply."""
    client.leaving = True
    return _OK


async def choose(_port: RespPort, _client: RespClient, given: CommandArguments) -> Any:
    """Selects database 0, the only one."""
    index = given.raw("index")
    given.done()
    if index != b"0":
        raise RespError(
            "ERR", "DB index is out of range: there is 0 alone; a log is named by the key of a command"
        )
    return _OK


async def authenticate(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``AUTH [name] token``."""
    name = given.text("username") if given.left > 1 else _DEFAULT
    token = given.text("password")
    given.done()
    await _let_in(port, client, name, token)
    return _OK


async def greet(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``HELLO [version [AUTH name token] [SETNAME name]]``."""
    speaks, name = client.version, client.name
    proof: list[str] = []
    if given.left:
        asked = given.raw("protover")
        if asked not in (b"2", b"3"):
            raise RespError("NOPROTO", "unsupported protocol version")
        speaks = int(asked)

        def take_name() -> None:
            nonlocal name
            name = _name(given)

        given.options(
            {
                "AUTH": lambda: proof.extend((given.text("username"), given.text("password"))),
                "SETNAME": take_name,
            }
        )
    if proof:
        await _let_in(port, client, *proof)
    try:
        await port.principal(client)
    except Unauthenticated:
        right = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used"
        raise RespError(
            "NOAUTH",
            f"{right} to authenticate the client and select the RESP protocol version at the same time",
        ) from None
    client.version, client.name = speaks, name
    return {
        "server": "penstock",
        "version": version(),
        "proto": speaks,
        "id": client.id,
        "mode": "standalone",
        "role": "master",
        "modules": [],
    }


async def inform(_port: RespPort, _client: RespClient, given: CommandArguments) -> Any:
    """``INFO [section ...]``: what clients ask before they send anything else."""
    if given.left > _SECTIONS:
        raise RespError("ERR", f"INFO takes at most {_SECTIONS} sections, not {given.left}")
    wanted = {given.raw("section").lower() for _ in range(given.left)} or {b"all"}
    told: dict[str, dict[str, object]] = {
        "Server": {"server_name": "penstock", "penstock_version": version(), "redis_mode": "standalone"},
        "Persistence": {"loading": 0},
        "Replication": {"role": "master", "connected_slaves": 0},
    }
    return "\r\n".join(
        f"# {section}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in figures.items())
        for section, figures in told.items()
        if wanted & {section.lower().encode(), *_ALL_SECTIONS}
    )


async def answer_client(_port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``CLIENT ID | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text``."""
    word = given.raw("subcommand").upper()
    subcommands: dict[bytes, Callable[[], Any]] = {
        b"ID": lambda: client.id,
        b"GETNAME": lambda: client.name,
        b"SETNAME": lambda: _set_name(client, given),
        b"SETINFO": lambda: _check_library(given),
    }
    if word not in subcommands:
        right = b", ".join(subcommands).decode()
        raise RespError("ERR", f"unknown subcommand {shown(word)} of CLIENT, which must be one of {right}")
    answer = subcommands[word]()
    given.done()
    return answer


def _set_name(client: RespClient, given: CommandArguments) -> SimpleString:
    client.name = _name(given)
    return _OK


def _check_library(given: CommandArguments) -> SimpleString:
    attribute = given.raw("attribute").upper()
    if attribute not in (b"LIB-NAME", b"LIB-VER"):
        raise RespError("ERR", f"unrecognized option {shown(attribute)}, which must be LIB-NAME or LIB-VER")
    _name(given)  # checked, but not kept: nothing uses it
    return _OK


def _name(given: CommandArguments) -> str:
    """Consumes a name; refuses characters that would break a log line."""
    name = given.text("name")
    if len(name) > _NAME or not name.isprintable() or " " in name:
        raise RespError(
            "ERR",
            f"Client names cannot contain spaces, newlines or special characters, nor more than {_NAME} letters",
        )
    return name


async def _let_in(port: RespPort, client: RespClient, name: str, token: str) -> None:
    """Authenticates a client by a token. The name must be that of the principal, or ``default``.

    Raises:
        RespError: If the client is refused.
        NotAuthenticated: If authentication takes longer than the timeout.
    """
    if port.access.open:
        raise RespError("ERR", _OPEN)
    revision = port.access.revision
    known = client.principal
    if (
        known is not None
        and token == client.token
        and name in (_DEFAULT, known.name)
        and client.revision == revision
        and not port.access.expired(known)
    ):
        return
    try:
        found = await port.judge(client, token)
    except (Unauthenticated, Forbidden):
        found = None
    if found is None or name not in (_DEFAULT, found.name):
        client.refusals += found is not None  # that of an unknown token is counted
        raise RespError("WRONGPASS", "invalid username-password pair or user is disabled.")
    client.token, client.principal, client.revision = token, found, revision
