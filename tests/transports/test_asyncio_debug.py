"""Every coroutine once more under the debug mode of asyncio and of the interpreter, where mistakes that are silent else are errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SUITES = [
    "tests/flow/bridges/test_asyncio.py",
    "tests/flow/bridges/test_async_subscriber.py",
    "tests/flow/bridges/test_async_iterable.py",
    "tests/flow/test_executors.py",
    "tests/transports/websocket/test_client.py",
    "tests/transports/websocket/test_connection.py",
    "tests/transports/websocket/test_protocol.py",
    "tests/transports/graphql/test_connection.py",
    "tests/transports/graphql/test_http.py",
    "tests/transports/test_server.py",
    "tests/transports/test_application.py",
]
"""The fewest that enter each ``async def`` of `flow` and `transports` that a server, a client or a bridge runs."""


@pytest.mark.timeout(1200)
def test_nothing_that_asyncio_can_find_in_debug_mode_is_wrong(tmp_path, capsys):
    """T15: calls from foreign threads, coroutines never awaited, files and loops left open; slow callbacks are counted.

    How slow a callback is depends on who else uses the machine, so that is told and not judged.
    """
    log = tmp_path / "asyncio.log"
    done = subprocess.run(
        [
            *(sys.executable, "-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-W", "error", f"--log-file={log}", "--log-file-level=WARNING"),
            *SUITES,
        ],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) > 200
    text = log.read_text()
    assert "never awaited" not in text
    assert "never retrieved" not in text
    slow = [float(seconds) for seconds in re.findall(r"Executing .* took ([\d.]+) seconds", text)]
    with capsys.disabled():
        sys.stdout.write(
            f"\nasyncio debug: {passed[1]} tests, {len(slow)} slow callbacks, at most {max(slow, default=0):.2f} s\n"
        )
