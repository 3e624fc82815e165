"""Connections to checked addresses, with a deadline for all their calls."""

import ipaddress
import socket
import threading
import typing
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

import httpcore

from flow.clock import SYSTEM_CLOCK
from publishers.errors import InvalidOption
from transports.sinks.errors import TargetRefused

__all__ = ["AddressGuard", "GuardedNetwork"]

_Address = IPv4Address | IPv6Address
_PIECE: Final = 65536  # bytes written between two checks of the deadline
_NAT64: Final = IPv6Network("64:ff9b::/96")


class AddressGuard:
    """Refuses addresses of this machine and of networks that are not public, so that a URL cannot reach what its author may not reach.

    Args:
        allow: Networks that may be reached all the same, such as ``10.1.0.0/16``.

    Raises:
        InvalidOption: If an entry is not a network.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self.allow: list[IPv4Network | IPv6Network] = []
        for network in allow:
            try:
                self.allow.append(ipaddress.ip_network(network))
            except ValueError:
                raise InvalidOption("allow", network, "a network, such as 10.1.0.0/16") from None

    def allows(self, text: str) -> bool:
        """Returns whether an address may be reached; also checks an IPv4 address embedded in it."""
        address = ipaddress.ip_address(text)
        inner = _inner(address)
        if any(
            one in network
            for one in (address, inner)
            for network in self.allow
            if one.version == network.version
        ):
            return True
        public = inner.is_global and not inner.is_multicast and not inner.is_reserved
        return public and (inner is not address or not getattr(address, "is_site_local", False))


def _inner(address: _Address) -> _Address:
    """Returns the IPv4 address that an IPv6 address maps or translates to; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    bare = IPv6Address(int(address))  # without a zone
    if bare in _NAT64 or (int(address) >> 32 == 0 and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class GuardedNetwork(httpcore.NetworkBackend):
    """Resolves a name once for each connection, and connects to one of the checked addresses.

    Args:
        guard: Checks the addresses.
        resolve: ``socket.getaddrinfo``.

    Threads may share it; each has its own deadline.
    """

    def __init__(
        self, guard: AddressGuard, resolve: Callable[..., Sequence[Any]] = socket.getaddrinfo
    ) -> None:
        self._own = threading.local()
        self._guard, self._resolve = guard, resolve
        self._plain = httpcore.SyncBackend()

    @property
    def deadline(self) -> float:
        """The time by which all calls of this thread must be done, by ``time.monotonic``."""
        return getattr(self._own, "deadline", 0.0)

    @deadline.setter
    def deadline(self, moment: float) -> None:
        self._own.deadline = moment

    def left(self, late: type[Exception] = httpcore.ReadTimeout) -> float:
        """Returns the remaining seconds; raises ``late`` if none remain."""
        left = self.deadline - SYSTEM_CLOCK.monotonic()
        if left <= 0:
            raise late("its time is over")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connects to a host.

        Raises:
            TargetRefused: If none of its addresses may be reached.
            httpcore.ConnectError, httpcore.ConnectTimeout: If the name has no address, or the host does not answer.
        """
        try:
            found = self._resolve(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} has no address: {error}") from None
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        reachable = [address for address in addresses if self._guard.allows(address)]
        if not reachable:
            where = "" if addresses == [host] else f" is {', '.join(addresses)}, which"
            raise TargetRefused(f"{host}{where} is not public; add its network to 'allow' if it is meant")
        failure: Exception = httpcore.ConnectError("no address")
        for address in reachable:
            try:
                stream = self._plain.connect_tcp(
                    address, port, self.left(httpcore.ConnectTimeout), local_address, socket_options
                )
            except httpcore.ConnectError as error:
                failure = error
            else:
                return _TimedStream(stream, self)
        raise failure


class _TimedStream(httpcore.NetworkStream):
    """A connection whose calls share the deadline of the request."""

    def __init__(self, stream: httpcore.NetworkStream, network: GuardedNetwork) -> None:
        self._stream, self._network = stream, network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._network.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for begin in range(0, len(buffer), _PIECE):
            self._stream.write(buffer[begin : begin + _PIECE], self._network.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._network.left(httpcore.ConnectTimeout)
        return _TimedStream(self._stream.start_tls(ssl_context, server_hostname, left), self._network)

    def get_extra_info(self, info: str) -> typing.Any:
        return self._stream.get_extra_info(info)
