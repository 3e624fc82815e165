"""``MULTI``, ``EXEC`` and ``DISCARD``: commands that are kept until ``EXEC``, then executed one after the other.

Commands of others may be executed between them, and none of them waits for a change.
"""

from typing import Any, Final

from transports.resp.arguments import CommandArguments
from transports.resp.client import RespClient
from transports.resp.port import RESP_ARGUMENTS, RespPort
from transports.resp.replies import Encoded, RespError, SimpleString
from transports.resp.transaction import RespTransaction

__all__ = ["begin", "discard", "execute", "keep"]

_OK: Final = SimpleString("OK")
_QUEUED: Final = SimpleString("QUEUED")


async def begin(port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``MULTI``."""
    given.done()
    if client.transaction is not None:
        raise RespError("ERR", "MULTI calls can not be nested")
    client.transaction = RespTransaction(port.limits.resp_command_bytes, RESP_ARGUMENTS)
    return _OK


def keep(client: RespClient, words: list[bytes], *, allowed: bool) -> SimpleString:
    """Keeps a command for ``EXEC``.

    Raises:
        RespError: If it cannot be one of a transaction, or the transaction is too large.
    """
    assert client.transaction is not None
    if not allowed:
        raise RespError("ERR", "Command not allowed inside a transaction")
    if not client.transaction.refused:
        client.transaction.add(words)
    return _QUEUED


async def execute(_port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``EXEC``: the head of its reply; the connection executes the commands, and their replies follow."""
    given.done()
    transaction = client.transaction
    if transaction is None:
        raise RespError("ERR", "EXEC without MULTI")
    if transaction.refused:
        client.transaction = None
        raise RespError("EXECABORT", "Transaction discarded because of previous errors.")
    transaction.executing = True
    return Encoded(b"*%d\r\n" % len(transaction))


async def discard(_port: RespPort, client: RespClient, given: CommandArguments) -> Any:
    """``DISCARD``."""
    given.done()
    if client.transaction is None:
        raise RespError("ERR", "DISCARD without MULTI")
    client.transaction = None
    return _OK
