"""penstock.js outside a browser: over the WebSocket of Node and over that of npm ``ws``, with servers that misbehave."""

import json
import shutil
import subprocess
from inspect import signature
from pathlib import Path

import pytest

from publishers import ChangeLog, remove, upsert
from tests.clients.conftest import running
from tests.harness.constants import set_bounds
from transports import Backoff, connect, serve
from transports.client.reconnect import QUIET_PARTS
from transports.errors import CloseCode
from transports.protocol.client import ClientSession

ROOT = Path(__file__).parents[2]
BROWSER = ROOT / "transports" / "browser"
KINDS = ("own", "ws")
TSC = [
    "--allowJs",
    "--checkJs",
    "--strict",
    "--declaration",
    "--emitDeclarationOnly",
    "--skipLibCheck",
    "--target",
    "es2022",
    "--module",
    "nodenext",
    "--lib",
    "es2022,dom,dom.iterable",
]


@pytest.fixture
def script(node):
    """Runs a script beside penstock.js."""

    def run(name, *arguments):
        command = ["node", "--no-warnings", "--experimental-websocket", node / name, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_survives_what_a_socket_can_do_and_ends_at_the_codes_that_python_knows_as_final(
    script, kind
):
    """E55: the same close codes are final for both clients, and they keep one schedule."""
    told = json.loads(script("sockets.mjs", kind, *map(int, CloseCode)))
    assert told["codes"] == {str(int(code)): "open" if code.retryable else "closed" for code in CloseCode}
    certain = Backoff(jitter=lambda: 1.0)
    first, *_ = delays = [1000 * certain.delay(attempt) for attempt in range(6)]
    third = 1000 * ClientSession(certain.delay).keepalive / QUIET_PARTS
    opens = 1000 * signature(connect).parameters["open_timeout"].default
    assert told["schedule"] == {
        "delays": delays,
        "opens": opens,
        "asks": third,
        "waits": third,
        "again": first,
    }
    page = (ROOT / "docs" / "protocol.md").read_text()
    for row in (
        f"without `connection_ack` | {opens:,.0f} ms,",
        f"| 0 to {first:.0f} ms,",
        f"at most {delays[-1]:,.0f} ms |",
        f"a third of `keepAliveMs`, {third:,.0f} ms",
    ):
        assert row in page
    assert told["refused"] == [*delays[:3], *delays[:2], first]
    assert max(2 * third + first, opens + delays[-1]) < 10_000


def test_its_types_are_those_of_its_code_and_find_mistakes(node, tmp_path):
    """E55: TypeScript accepts penstock.js by its comments; penstock.d.ts is what it declares then.

    Costs four seconds of CPU time: the compiler reads its libraries.
    """
    for file in (BROWSER / "penstock.js", BROWSER / "penstock.d.ts", Path(__file__).with_name("typed.ts")):
        shutil.copy(file, tmp_path)
    command = [node / "node_modules" / ".bin" / "tsc", *TSC, "--outDir", "made", "penstock.js", "typed.ts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "made" / "penstock.d.ts").read_text() == (BROWSER / "penstock.d.ts").read_text(), (
        f"write it anew in transports/browser: tsc {' '.join(TSC)} penstock.js"
    )


async def test_the_hook_for_react_shows_each_state_under_strict_mode_and_leaves_nothing_behind(
    node, tmp_path, until
):
    """F88: StrictMode mounts twice; one subscription is left, and none when the component has gone."""
    set_bounds(state_interval=0.0)
    with ChangeLog.open(tmp_path / "shop", state=True) as log:
        log.commit([upsert("order", str(number), {"n": number}) for number in range(3)])
        with serve(log) as server:
            async with running("node", node / "strict.mjs", server.url) as client:
                (first,) = await client.lines(1)
                assert first == {"orders": {str(n): {"n": n} for n in range(3)}, "opened": 2}
                await until(lambda: len(log.statistics().subscriptions) == 1)
                log.commit([remove("order", "0"), upsert("order", "last", {})])
                (second,) = await client.lines(1)
                assert second["orders"] == {"1": {"n": 1}, "2": {"n": 2}, "last": {}}
                assert await client.ended() == 0
                assert [
                    one for one in client.complaints if "react-test-renderer is deprecated" not in one
                ] == []
            await until(lambda: not log.statistics().subscriptions)
