"""The state of one client of the Redis protocol."""

from collections.abc import Hashable
from dataclasses import dataclass

from transports.access.principal import ANONYMOUS, PeerCertificate, Principal
from transports.appends import payer_of
from transports.resp.transaction import RespTransaction

__all__ = ["RespClient"]


@dataclass(slots=True, eq=False)
class RespClient:
    """One connection, as the commands see it.

    Attributes:
        id: Its number, from 1.
        address: The client's address; None if unknown.
        peer_certificate: The certificate that TLS has verified; None without one.
        version: The version of the protocol, 2 or 3.
        name: The name that the client has set.
        token: The token of the client; None without one.
        principal: The authenticated principal; None before.
        revision: The revision of the access data under which the client was authenticated.
        refusals: How often its token, or that it showed none, was refused.
        leaving: Whether to close the connection behind the reply.
        ended: Whether the client sends nothing more: its commands are still answered, but no longer wait.
        transaction: The commands behind ``MULTI``; None if there is none.
        abandons: Whether the current command is abandoned once the client sends nothing more.
    """

    id: int
    address: str | None = None
    peer_certificate: PeerCertificate | None = None
    version: int = 2
    name: str = ""
    token: str | None = None
    principal: Principal | None = None
    revision: int = 0
    refusals: int = 0
    leaving: bool = False
    ended: bool = False
    abandons: bool = False
    transaction: RespTransaction | None = None

    @property
    def payer(self) -> Hashable:
        """Who pays for what it asks."""
        return payer_of(self.principal or ANONYMOUS, self.address)

    @property
    def collects(self) -> bool:
        """Whether commands are kept for ``EXEC``."""
        return self.transaction is not None and not self.transaction.executing
