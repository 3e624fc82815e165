"""The access log: one line per HTTP request, and one per WebSocket when it ends.

The log is on while the logger ``penstock.access`` is enabled for INFO, and costs nothing otherwise. No line contains query
strings, headers or messages of a client, because they may carry tokens.
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
    """Whether the access log is on."""
    return _LOG.isEnabledFor(logging.INFO)


class AccessEntry:
    """The log entry of one request or connection.

    Args:
        scope: The ASGI scope. The application stores ``penstock.principal`` in it; for a WebSocket also
            ``penstock.connection``, or ``penstock.status`` if the upgrade was refused.

    Attributes:
        status: The status of the response or of the refused upgrade; for an accepted WebSocket the reason why the server
            closed it, or ``CLOSED``.
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
        """Runs the application for an HTTP request, then writes the line."""

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
            ending: Why the server closed the connection; None if the server did not close it.
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
        fields: dict[str, Any] = {
            "method": self._method,
            "path": path,
            "status": status,
            "client": client,
            "seconds": round(elapsed, 6),
        }
        if self._method != "WEBSOCKET":
            fields["bytes"] = self._bytes
        if who is not None:
            fields["principal"] = who
        _LOG.info(
            "%s %s %s in %.3f s from %s%s",
            self._method,
            path,
            status,
            elapsed,
            client,
            "" if who is None else f" as {who}",
            extra={"data": fields},
        )
