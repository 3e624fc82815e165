"""Cross-origin resource sharing (Fetch standard §3.2): which web pages may read HTTP responses."""

from http import HTTPStatus
from typing import Final

from transports.access.web_origins import WebOrigins
from transports.http.asgi import ASGIApplication, ASGIMessage, ASGISend, Receive, Scope, respond
from transports.http.scope import headers_of

__all__ = ["Cors"]

# Headers beyond those that a page may always send: the token, the content type, and headers that GraphQL clients add to
# force a preflight or to name themselves.
_HEADERS: Final = (
    "apollo-require-preflight",
    "apollographql-client-name",
    "apollographql-client-version",
    "authorization",
    "content-type",
    "graphql-require-preflight",
    "x-apollo-operation-id",
    "x-apollo-operation-name",
    "x-requested-with",
)
_MAX_AGE: Final = 7200  # seconds; Chromium caches no longer
_PREFLIGHT: Final = [
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (b"access-control-allow-headers", ", ".join(_HEADERS).encode()),
    (b"access-control-max-age", b"%d" % _MAX_AGE),
]


class Cors:
    """Lets pages of allowed origins read every response of an application, errors included, and answers preflights.

    For any other page the responses stay as they are, and the page cannot read them. Cookies have no meaning here, so
    ``Access-Control-Allow-Credentials`` is never sent; a page sends its token in ``Authorization``.

    Args:
        application: The application.
        origins: The pages that may read.
    """

    def __init__(self, application: ASGIApplication, origins: WebOrigins) -> None:
        self._application = application
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: ASGISend) -> None:
        """Answers one HTTP request."""
        headers = headers_of(scope)
        origin = headers.get("origin", "")
        added = [(b"vary", b"origin")]
        if origin and self._origins.welcomes(origin):
            added.append((b"access-control-allow-origin", origin.encode("latin-1")))
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                # For any path: the response to the request itself reports its errors.
                await respond(send, HTTPStatus.NO_CONTENT, [*_PREFLIGHT, *added])
                return

        async def sending(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._application(scope, receive, sending)
