"""The path below the prefix, under every host that gives it in its own way."""

import pytest

from transports.http.scope import path_below


def scope(path, root, raw):
    return {"path": path, "root_path": root, "raw_path": raw}


@pytest.mark.parametrize(
    ("path", "root", "raw", "below"),
    [
        # Nothing above it.
        ("/health", "", b"/health", "/health"),
        ("/", "", b"/", "/"),
        ("/board/board.css/", "", b"/board/board.css/", "/board/board.css/"),
        # ASGI, uvicorn with --root-path, Starlette and FastAPI: the path is whole.
        ("/live/health", "/live", b"/live/health", "/health"),
        ("/a/live/health", "/a/live", b"/a/live/health", "/health"),
        ("/live/", "/live", b"/live/", "/"),
        ("/live", "/live", b"/live", ""),
        ("/live/health", "/live/", b"/live/health", "/health"),
        ("/é/health", "/é", b"/%C3%A9/health", "/health"),
        ("/ws/ws", "/ws", b"/ws/ws", "/ws"),
        ("/live/live/ws", "/live", b"/live/live/ws", "/live/ws"),
        ("/live/board/board.css/", "/live", b"/live/board/board.css/", "/board/board.css/"),
        # Starlette before 0.33, and others: the prefix is taken off.
        ("/health", "/live", b"/live/health", "/health"),
        ("/ws", "/ws", b"/ws/ws", "/ws"),
        ("/graphql", "/graphql", b"/graphql/graphql", "/graphql"),
        ("/graphql/graphiql.js", "/graphql", b"/graphql/graphql/graphiql.js", "/graphql/graphiql.js"),
        ("/", "/live", b"/live/", "/"),
        ("/", "/live", b"/live", ""),
        ("", "/live", b"/live", ""),
        # Hypercorn with a root_path: a proxy took the prefix off, and nothing has put it on again.
        ("/health", "/live", b"/health", "/health"),
        ("/liveness", "/live", b"/liveness", "/liveness"),
        # Litestar: the prefix is taken off, a slash is put on, and root_path is the server's.
        ("/health/", "", b"/live/health", "/health"),
        ("/health/", "", b"/live/health/", "/health/"),
        ("/", "", b"/live/", "/"),
        ("/", "", b"/live", ""),
        ("/ws/", "/a", b"/a/live/ws", "/ws"),
        ("/graphql/", "", b"/live/graphql?query=%7Blogs%7D/", "/graphql"),
        # raw_path may be missing (ASGI 3.0).
        ("/live/health", "/live", None, "/health"),
        ("/health", "/live", None, "/health"),
        ("/health/", "", None, "/health/"),
        ("/live", "/live", None, ""),
    ],
)
def test_the_path_is_that_below_the_prefix(path, root, raw, below):
    assert path_below(scope(path, root, raw)) == below


def test_a_scope_may_leave_out_what_is_optional():
    assert path_below({"path": "/health"}) == "/health"
    assert path_below({"path": "/health", "root_path": None}) == "/health"
