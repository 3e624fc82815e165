"""What is known of one client of the Redis protocol."""

from dataclasses import dataclass

from transports.access.principal import PeerCertificate, Principal

__all__ = ["RespClient"]


@dataclass(slots=True, eq=False)
class RespClient:
    """One connection, as the commands see it.

    Attributes:
        id: Its number, from 1.
        address: Where it comes from, or None.
        peer_certificate: The certificate that its TLS connection has proved, or None.
        version: Of the protocol, 2 or 3.
        name: What it calls itself.
        token: By which it has shown who it is, or None.
        principal: Who that is, or None.
        revision: Of the access under which that was found out.
        leaving: Whether it is to be closed behind the reply.
        ended: Whether it says nothing more: what it has asked is answered, and not waited for.
        abandons: Whether what is being answered is of no use once it says nothing more.
    """

    id: int
    address: str | None = None
    peer_certificate: PeerCertificate | None = None
    version: int = 2
    name: str = ""
    token: str | None = None
    principal: Principal | None = None
    revision: int = 0
    leaving: bool = False
    ended: bool = False
    abandons: bool = False
