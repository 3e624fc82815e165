"""The connection of a command to a server."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from transports.cli.http import tokens_of, trust_of
from transports.cli.source import existing, url_of
from transports.client.backoff import Backoff
from transports.client.reconnect import OnWait
from transports.client.remote_log import RemoteLog, connect
from transports.operations.operation import EVERYTHING, LogOperation, Target

__all__ = ["ask_remote", "carry_out", "remote_of"]

_T = TypeVar("_T")


def remote_of(
    chosen: argparse.Namespace, url: str, *, reconnect: Backoff | bool = False, on_wait: OnWait | None = None
) -> RemoteLog:
    """Returns the remote log of a server, with the credentials of the command; ``async with`` connects it."""
    trust = trust_of(chosen, url)
    return connect(
        url,
        token=tokens_of(chosen),
        ssl=None if trust is None else trust.context,
        server_name=None if trust is None else trust.name,
        reconnect=reconnect,
        on_wait=on_wait,
    )


def ask_remote(chosen: argparse.Namespace, url: str, ask: Callable[[RemoteLog], Awaitable[_T]]) -> _T:
    """Runs a request on a connection of its own, and returns the reply.

    Raises:
        RemoteError: If the server refuses it, for example because of the grant.
    """

    async def asked() -> _T:
        async with remote_of(chosen, url) as remote:
            return await ask(remote)

    return asyncio.run(asked())


def carry_out(chosen: argparse.Namespace, operation: LogOperation[_T]) -> _T:
    """Carries an operation out: has the server do it, or does it on the log, of which this process is the owner meanwhile.

    Raises:
        RemoteError: If the server refuses it, for example because of the grant.
        PenstockError: As the operation.
    """
    if (url := url_of(chosen.directory)) is not None:
        return ask_remote(chosen, url, lambda remote: remote.ask(operation))
    with existing(chosen) as log:
        return operation.run(Target(log.name, log, EVERYTHING))
