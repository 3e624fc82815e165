"""The client of an HTTP request: authenticated before its body is read, and again if that took long."""

from collections.abc import Hashable
from typing import Self

from flow.clock import SYSTEM_CLOCK
from transports.access.access import Access
from transports.access.principal import ANONYMOUS, Principal
from transports.appends import payer_of
from transports.http.asgi import Scope
from transports.http.scope import client_of, credentials_of

__all__ = ["Caller"]


class Caller:
    """Made by ``Caller.of``.

    Attributes:
        principal: The principal.
        client: The client to which threads are charged.
    """

    def __init__(self, access: Access, scope: Scope) -> None:
        self.principal: Principal = ANONYMOUS
        self.client: Hashable = client_of(scope)
        self._access = access
        self._scope = scope
        self._since = SYSTEM_CLOCK.monotonic()
        self._revision = access.revision

    @classmethod
    async def of(cls, access: Access, scope: Scope) -> Self:
        """Authenticates the client of a request, and notes its name for the access log.

        Raises:
            Unauthenticated: If it is refused.
            NotAuthenticated: If authentication takes longer than the timeout.
        """
        caller = cls(access, scope)
        if not access.open:
            caller.principal = await access.principal(credentials_of(scope))
        scope["penstock.principal"] = caller.principal.name
        return caller

    @property
    def payer(self) -> Hashable:
        """Who is charged for the bytes of the request."""
        return payer_of(self.principal, self.client)

    async def still(self) -> Principal:
        """Returns the principal, now that the body has arrived.

        Raises:
            Unauthenticated: If its credentials are not accepted any more.
            NotAuthenticated: As ``of``.
        """
        if not self._access.open:
            credentials = credentials_of(self._scope)
            self.principal = await self._access.again(
                self.principal, credentials, since=self._since, revision=self._revision
            )
        return self.principal
