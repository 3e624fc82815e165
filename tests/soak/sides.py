"""The clients of a soak, each in processes of its own that can be stopped and continued: Python, each Node, and Chromium."""

import functools
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.browser.chromium import PROGRAM, Tab, chromium
from tests.clients.runtimes import nodes

__all__ = ["Side", "page_server", "sides"]

ROOT: Final = Path(__file__).parents[2]
_PAGE: Final = """<!doctype html><title>following</title><script type="importmap">
{"imports": {"react": "/react_in_a_page.mjs", "react-test-renderer": "/react_in_a_page.mjs"}}
</script>"""


class Side(ABC):
    """A client that runs.

    Attributes:
        name: What it runs in.
        group: The id of its process group.
    """

    name: str
    group: int

    @abstractmethod
    def tell(self) -> dict[str, Any]:
        """What came until now: see ``follow`` in ``tests/clients/following.mjs``."""

    def sleep(self) -> None:
        """Stops all its processes, as a machine does that sleeps."""
        os.killpg(self.group, signal.SIGSTOP)

    def wake(self) -> None:
        """Continues them."""
        os.killpg(self.group, signal.SIGCONT)


class _Program(Side):
    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self.group = process.pid
        self._process = process

    def tell(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self.name} has ended"
        return json.loads(line)


class _Page(Side):
    name = "Chromium"

    def __init__(self, group: int, tab: Tab) -> None:
        self.group = group
        self._tab = tab

    def tell(self) -> dict[str, Any]:
        return self._tab.run("told()")


@contextmanager
def _program(name: str, *command: str | Path) -> Iterator[Side]:
    process = subprocess.Popen(
        [*map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    side = _Program(name, process)
    try:
        yield side
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def page_server(place: Path) -> Iterator[str]:
    """Serves the page of a place with scripts, and yields its origin."""
    (place / "index.html").write_text(_PAGE)

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    handler = functools.partial(Silent, directory=str(place))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def sides(
    place: Path, origin: str, url: str, *, shows: bool, seconds: float, few: bool = False
) -> Iterator[list[Side]]:
    """Starts all clients that this machine has programs for.

    Args:
        place: Where the scripts are.
        origin: That of the page.
        url: Of the WebSocket.
        shows: Whether they show a live map under StrictMode too (not the one in Python).
        seconds: How long each token is good.
        few: Whether one Node is enough, and Chromium is left out.
    """
    found = nodes(bring=not few)
    script = place / "following.mjs"
    with ExitStack() as stack:
        python = [sys.executable, "-m", "tests.soak.follower", url, str(seconds)]
        started = [stack.enter_context(_program("Python", *python))]
        for version, program in found.items():
            for kind in ("own", "ws"):
                if few and len(started) > 1:
                    continue
                flags = ["--experimental-websocket"] if version < 22 else []
                told = [url, kind, str(seconds), "yes" if shows else "no"]
                name = f"Node {version}, {'its WebSocket' if kind == 'own' else 'npm ws'}"
                started.append(
                    stack.enter_context(_program(name, program, "--no-warnings", *flags, script, *told))
                )
        if PROGRAM is not None and not few:
            browser = stack.enter_context(chromium())
            tab = stack.enter_context(browser.tab())
            tab.open(f"{origin}/index.html")
            told = ", ".join(map(json.dumps, (url, seconds, shows)))
            script_ = (
                'import("/following.mjs").then(({ follow }) => { globalThis.told = follow(%s); return 1; })'
            )
            tab.run(script_ % told)
            started.append(_Page(browser.group, tab))
        yield started
