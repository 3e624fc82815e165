"""Reviews whether connected clients still have the rights that they use."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any, Final

from transports.access.access import Access
from transports.access.grant import Grant, LogAction
from transports.access.principal import Principal
from transports.server.driver import Driver

__all__ = ["Revocation"]

_LOG: Final = logging.getLogger("penstock.transports")
_TURN: Final = 64  # connections that one turn of the loop reviews


class Revocation:
    """Reviews the connections of a server every half ``revocation`` period, as long as there are any.

    The authenticator is called again only when its source has changed, because it may take long. The authoriser is called at
    each review, once per principal and log.

    Args:
        access: Authenticates clients and authorises actions.
        connections: Returns the connections of the server.
        seconds: Option ``revocation``: the time within which a revocation takes effect.
    """

    def __init__(
        self, access: Access, connections: Callable[[], Collection[Driver[Any, Any]]], seconds: float
    ) -> None:
        self._access = access
        self._connections = connections
        self._pause = seconds / 2
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the reviews, because a connection has opened; on the event loop."""
        if not self._access.lasting and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            if not self._connections():
                return
            try:
                await self.review()
            except Exception:  # noqa: BLE001 - code of the application raised; the next review runs all the same
                _LOG.exception("the permissions of clients could not be reviewed")

    async def review(self) -> None:
        """Ends connections and subscriptions that are no longer allowed."""
        try:
            async with asyncio.timeout(self._pause):
                await self._access.refresh()
        except TimeoutError:
            pass
        known: dict[tuple[Principal, str, LogAction], Grant | None] = {}

        def granted(principal: Principal, log: str, action: LogAction) -> Grant | None:
            asked = principal, log, action
            if asked not in known:
                known[asked] = self._granted(*asked)
            return known[asked]

        for number, connection in enumerate(list(self._connections())):
            await connection.judge_again()
            connection.review(granted)
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)

    def _granted(self, principal: Principal, log: str, action: LogAction) -> Grant | None:
        try:
            return self._access.allows(principal, log, action)
        except Exception:  # noqa: BLE001 - the application's authoriser may raise anything; a failure counts as a refusal
            _LOG.exception("the authoriser failed for %s", principal.name)
            return None
