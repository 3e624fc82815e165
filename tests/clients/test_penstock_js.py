"""penstock.js outside a browser: over the WebSocket of Node and over that of npm ``ws``, with servers that misbehave."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from transports.errors import CloseCode

BROWSER = Path(__file__).parents[2] / "transports" / "browser"
KINDS = ("own", "ws")


@pytest.fixture
def script(node):
    """Runs a script beside penstock.js."""
    shutil.copy(BROWSER / "penstock.js", node)

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
    """E55: the same close codes are final for both clients."""
    told = json.loads(script("sockets.mjs", kind, *map(int, CloseCode)))
    assert told == {str(int(code)): "open" if code.retryable else "closed" for code in CloseCode}
