"""What an application serves at ``/graphql``."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Final

from transports.access.policy import Policy
from transports.access.tokens import Authenticator
from transports.graphql.execution import Engine
from transports.http.graphql import HttpEndpoint
from transports.limits import Limits
from transports.quotas.pool import Pools
from transports.quotas.weight import ServerWeight
from transports.server.graphql_driver import GraphQLDriver
from transports.server.link import Offer

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["SUBPROTOCOL", "GraphQLEndpoint"]

SUBPROTOCOL: Final = "graphql-transport-ws"
"""The token of the protocol; a client that offers none gets it."""


class GraphQLEndpoint:
    """The GraphQL of one server.

    Attributes:
        engine: Executes what comes in over sockets and over HTTP.
        http: The ASGI callable for HTTP requests.

    Args:
        logs: The logs of the server, by name.
        limits: Bounds of each connection.
        authenticate: Judges the tokens of clients; None lets everybody in.
        policy: What callers may see; None for everything.
        weight: That of the whole server; None for a server of this endpoint alone.
        pools: Threads for what reads the disk.
    """

    subprotocol: Final = SUBPROTOCOL

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        limits: Limits,
        authenticate: Authenticator | None = None,
        policy: Policy | None = None,
        *,
        weight: ServerWeight | None = None,
        pools: Pools,
    ) -> None:
        self.engine = Engine(logs, limits, policy)
        self.http = HttpEndpoint(self.engine, limits, authenticate, pools)
        self._pools = pools
        self._limits = limits
        self._weight = weight or ServerWeight(limits.criteria_weight)
        self._authenticate = authenticate

    def connection(
        self,
        link: Offer,
        *,
        client: Hashable,
        token: str | None,
        on_lost: Callable[[GraphQLDriver], None],
    ) -> GraphQLDriver:
        """The receiver of one WebSocket, on the running event loop."""
        return GraphQLDriver(
            self.engine,
            link,
            pools=self._pools,
            client=client,
            limits=self._limits,
            weight=self._weight,
            loop=asyncio.get_running_loop(),
            authenticate=self._authenticate,
            token=token,
            on_lost=on_lost,
        )
