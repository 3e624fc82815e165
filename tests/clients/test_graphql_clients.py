"""npm ``graphql-ws`` and Python ``gql``, unmodified, and the audits of ``graphql-http``."""

import asyncio
import json
import subprocess

from transports import Limits, serve


def socket_url(server):
    return server.graphql_url.replace("http:", "ws:")


def positions(lines):
    return [(int(line["version"]), line["index"]) for line in lines]


def everything(versions, changes, first=1):
    return [(version, index) for version in range(first, first + versions) for index in range(changes + 1)]


async def test_a_client_receives_the_exact_sequence(log, fill, follow):
    """F130."""
    oldest = str(log.token(log.oldest))
    fill(20, 4)
    with serve(log) as server:
        async with follow(socket_url(server), oldest) as client:
            lines = await client.lines(100)
            fill(100, 4)  # and goes on with what is committed meanwhile
            lines += await client.lines(500)
    assert positions(lines) == everything(120, 4)
    assert [line["body"] for line in lines[1:5]] == [{"total": place} for place in range(4)]
    assert [line["operation"] for line in lines[:2]] == ["TRANSACTION", "UPSERT"]


async def test_a_client_resumes_where_it_was_over_restarts_of_the_server(log, fill, follow):
    """F130."""
    oldest = str(log.token(log.oldest))
    fill(5, 3)
    server = serve(log)
    async with follow(socket_url(server), oldest) as client:
        lines = await client.lines(20)
        for _ in range(2):
            await asyncio.to_thread(server.stop)
            fill(5, 3)  # what happens while there is no server is not missed either
            server = serve(log, port=server.port)
            lines += await client.lines(20)
        await asyncio.to_thread(server.stop)
    assert positions(lines) == everything(15, 3)


async def test_a_client_goes_on_behind_the_cursor_that_it_kept(log, fill, follow):
    oldest = str(log.token(log.oldest))
    fill(10, 2)
    with serve(log) as server:
        async with follow(socket_url(server), oldest) as client:
            first = await client.lines(17)
        async with follow(socket_url(server), first[16]["cursor"]) as client:
            rest = await client.lines(13)
    assert positions(first + rest) == everything(10, 2)


async def test_a_client_answers_the_pings_that_hold_events_back(log, fill, follow):
    oldest = str(log.token(log.oldest))
    fill(20, 49)
    with serve(log, limits=Limits(fence_events=10, fence_width=2, fence_timeout=3600.0)) as server:
        async with follow(socket_url(server), oldest) as client:
            lines = await client.lines(1000)  # fifty times as many as may be unanswered
    assert positions(lines) == everything(20, 49)


async def test_a_client_is_told_that_its_cursor_is_not_one(log, follow):
    with serve(log) as server:
        async with follow(socket_url(server), "nonsense") as client:
            assert await client.ended() == 1
    assert "is not a position" in "".join(client.complaints)


async def test_the_audits_of_graphql_over_http_pass(log, node):
    with serve(log) as server:
        done = await asyncio.to_thread(
            subprocess.run,
            ["node", node / "audit.mjs", server.graphql_url],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    audits = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(audits) >= 61
    assert [audit for audit in audits if audit["status"] != "ok"] == []
