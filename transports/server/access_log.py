"""The access log: a line for each request over HTTP, and for each WebSocket when it has ended.

It is written as soon as the logger ``penstock.access`` is enabled for INFO, and costs nothing before. What a client says in
queries, headers and messages is in none of its lines, as tokens may be there.
"""

import logging
from time import monotonic
from typing import Any, Final

from transports.http.asgi import ASGIApplication, ASGIMessage, ASGISend, Receive, Scope
from transports.telemetry.lines import ACCESS

__all__ = ["AccessEntry", "is_wanted"]

_LOG: Final = logging.getLogger(ACCESS)
_PATH_MAX: Final = 200


def is_wanted() -> bool:
    """Whether there is an access log."""
    return _LOG.isEnabledFor(logging.INFO)


class AccessEntry:
    """One request or connection.

    Args:
        scope: Its scope, in which the application notes its ``penstock.principal``; of a WebSocket its ``penstock.connection``
            or the ``penstock.status`` with which it was refused.

    Attributes:
        status: That of the answer, or of a refused upgrade; of a WebSocket why the server has ended it, or ``CLOSED``.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._began = monotonic()
        self._method = scope.get("method", "WEBSOCKET")
        self.status: int | str | None = None
        self._bytes = 0

    async def follow(
        self, application: ASGIApplication, scope: Scope, receive: Receive, send: ASGISend
    ) -> None:
        """Has a request over HTTP answered, and writes the line."""

        async def counted(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self._bytes += len(message.get("body", b""))
            await send(message)

        try:
            await application(scope, receive, counted)
        finally:
            self.write()

    def write_ended(self, ending: str | None) -> None:
        """Writes the line of a WebSocket.

        Args:
            ending: Why the server has ended it; None if it did not.
        """
        self.status = self._scope.get("penstock.status") or ending or "CLOSED"
        if (connection := self._scope.get("penstock.connection")) is not None:
            self._scope["penstock.principal"] = connection.principal
        self.write()

    def write(self) -> None:
        """Writes the line."""
        elapsed = monotonic() - self._began
        client = (self._scope.get("client") or ("-",))[0]
        path = str(self._scope["path"])[:_PATH_MAX]
        status, who = self.status, self._scope.get("penstock.principal")
        told: dict[str, Any] = {
            "method": self._method,
            "path": path,
            "status": status,
            "client": client,
            "seconds": round(elapsed, 6),
        }
        if self._method != "WEBSOCKET":
            told["bytes"] = self._bytes
        if who is not None:
            told["principal"] = who
        _LOG.info(
            "%s %s %s in %.3f s from %s%s",
            self._method,
            path,
            status,
            elapsed,
            client,
            "" if who is None else f" as {who}",
            extra={"data": told},
        )
