"""A server and a client inside an application need no thread of its event loop's default pool."""

import asyncio
import contextlib
import json
import socket

import uvicorn

import flow
from publishers import Position, upsert
from tests.harness.occupying import occupied_pool
from tests.transports.server.test_appending import WRITERS
from transports import Access, Application, Credentials, LinkProtocol, Principal, connect

QUERY = json.dumps({"query": "{ statistics { name } }"})
CHANGES = json.dumps({"changes": [{"operation": "UPSERT", "entity_type": "order", "key": "1", "body": {}}]})
REQUESTS = [
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/statistics", None),
    ("GET", "/metrics", None),
    ("GET", "/schemas", None),
    ("POST", "/changes", CHANGES),
    ("POST", "/graphql", QUERY),
]


def known(credentials):
    """An authenticator that may block."""
    return Principal("ann")


@contextlib.asynccontextmanager
async def hosted(application):
    """A server of others on this loop."""
    config = uvicorn.Config(
        application, log_config=None, lifespan="off", ws=LinkProtocol, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


async def ask(port, method, path, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    given = (body or "").encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(given)}\r\n\r\n".encode() + given)
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


async def test_every_request_is_answered_while_no_thread_of_the_default_pool_is_free(log):
    application = Application(log, authenticate=known, authorise=WRITERS)
    async with occupied_pool(), hosted(application) as port:
        for method, path, body in REQUESTS:
            status, answer = await ask(port, method, path, body)
            assert status in (200, 201), (path, answer)
    application.stop()


async def test_a_client_commits_and_reads_while_no_thread_of_the_default_pool_is_free(log):
    application = Application(log, authenticate=known, authorise=WRITERS)
    async with (
        occupied_pool(),
        hosted(application) as port,
        connect(f"ws://127.0.0.1:{port}/ws") as remote,
    ):
        await remote.commit_async([upsert("order", "1", {})])
        async with remote.transaction() as tx:
            tx.upsert("order", "2", {})
        assert tx.commit.version == 2
        async with flow.aiter(remote.changes(since=Position(1), until=2)) as changes:
            assert [change.key async for change in changes] == [None, "1", None, "2"]
    application.stop()


async def test_whoever_asks_for_access_alone_needs_no_thread_of_the_default_pool():
    async with occupied_pool():
        assert (await Access(known).principal(Credentials())).name == "ann"
