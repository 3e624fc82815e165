"""What an application serves at ``/graphql``: the endpoint for HTTP requests, and the drivers of WebSockets."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Unpack

from transports.access.access import Access
from transports.appends import Appending
from transports.graphql.execution import Engine
from transports.graphql.openings import Openings
from transports.http.bodies import Bodies
from transports.http.graphql import HttpEndpoint
from transports.limits import Limits
from transports.quotas.pool import Pools
from transports.server.driver import DriverOptions
from transports.server.graphql_driver import GraphQLDriver
from transports.server.link import SocketLink
from transports.server.member_leases import MemberLeases
from transports.server.slot_leases import SlotLeases

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["GraphQLEndpoint"]


class GraphQLEndpoint:
    """The endpoint that an application serves at ``/graphql``.

    Attributes:
        engine: Executes the operations of sockets and of HTTP requests.
        http: The ASGI callable for HTTP requests.

    Args:
        logs: The logs of the server, by name.
        limits: Bounds of each connection.
        access: Which clients are admitted and what each may do.
        pools: The threads for disk reads.
        appending: The server's shared state for appends.
        leases: The slots that clients of the server have open.
        members: The group consumers that clients of the server have joined.
        bodies: Reads the bodies of HTTP requests.
    """

    subprotocol: Final = "graphql-transport-ws"
    """The sub-protocol token; a client that offers no token gets it."""

    def __init__(
        self,
        logs: "Mapping[str, ChangeLog]",
        limits: Limits,
        access: Access,
        pools: Pools,
        appending: Appending,
        leases: SlotLeases,
        members: MemberLeases,
        bodies: Bodies,
    ) -> None:
        self.engine: Engine = Engine(logs, limits, access, appending, Openings(leases.opened, members.joined))
        self._leases, self._members, self._requests = leases, members, bodies.held
        self.http: HttpEndpoint = HttpEndpoint(self.engine, bodies, access, pools)

    def connection(self, link: SocketLink, **serving: Unpack[DriverOptions]) -> GraphQLDriver:
        """Makes the driver of one WebSocket, on the running event loop."""
        return GraphQLDriver(
            self.engine,
            link,
            leases=self._leases,
            members=self._members,
            requests=self._requests,
            **serving,
        )
