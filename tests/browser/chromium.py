"""A headless Chromium, driven over its DevTools protocol; nothing but ``websockets`` is needed for that."""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

DEADLINE = 120.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP *.example 127.0.0.1",  # pages of origins that are not this machine's
    "--remote-debugging-port=0",
    "--window-size=1440,900",
)


class Tab:
    """One page.

    Attributes:
        complaints: What the page wrote to its console as an error or a warning, and what it threw.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.complaints: list[str] = []
        self._socket = socket
        self._number = 0
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; what happens meanwhile is noted."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=DEADLINE))
            if message.get("id") == self._number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message.get("method"), message.get("params", {}))

    def _note(self, method: str | None, told: dict[str, Any]) -> None:
        match method:
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(" ".join(str(one.get("value", one)) for one in told["args"]))
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self.complaints.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        """Goes to a page, and waits until it has loaded."""
        failed = self.call("Page.navigate", url=url).get("errorText")
        assert not failed, failed
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression, a promise being awaited."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str, deadline: float = DEADLINE) -> Any:
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + deadline
        pause = threading.Event()
        while not (value := self.run(condition)):
            assert time.monotonic() < end, f"{condition} did not come true in {deadline:g} s"
            pause.wait(0.05)
        return value

    def text(self, selector: str) -> str:
        """The text of an element."""
        return self.run(f"document.querySelector({json.dumps(selector)}).textContent.trim()")

    def click(self, selector: str) -> None:
        """Clicks where the element is."""
        where = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1
            )

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses a key."""
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def look(self, width: int, height: int, scheme: str = "dark", *, calm: bool = False) -> None:
        """Chooses a screen, a colour scheme, and whether motion is unwelcome."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        features.append({"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"})
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, *, whole: bool = False) -> bytes:
        """A screenshot, PNG."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])


class Browser:
    """A running browser, which opens tabs.

    Attributes:
        group: The id of the process group that all its processes are in.
    """

    def __init__(self, group: int, endpoint: str, socket: ClientConnection) -> None:
        self.group = group
        self._endpoint = endpoint
        self._socket = socket

    @contextlib.contextmanager
    def tab(self) -> Iterator[Tab]:
        """A tab of its own, closed at the end."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        base = self._endpoint.partition("/devtools")[0]
        try:
            with _connect(f"{base}/devtools/page/{target}") as socket:
                yield Tab(socket)
        finally:
            self._call("Target.closeTarget", targetId=target)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._socket.send(json.dumps({"id": 1, "method": method, "params": parameters}))
        while "result" not in (message := json.loads(self._socket.recv(timeout=DEADLINE))):
            assert "error" not in message, message
        return message["result"]


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Starts the browser, with a profile of its own."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(
            command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )
        try:
            endpoint = _endpoint(process, Path(profile, "DevToolsActivePort"))
            with _connect(endpoint) as socket:
                yield Browser(process.pid, endpoint, socket)
        finally:
            process.terminate()
            process.wait(DEADLINE)


def _connect(url: str) -> ClientConnection:
    return connect(url, max_size=None, compression=None, proxy=None, ping_interval=None, close_timeout=1)


def _endpoint(process: "subprocess.Popen[bytes]", file: Path) -> str:
    """Waits until the browser has written down where it listens."""
    end, pause = time.monotonic() + DEADLINE, threading.Event()
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        assert process.poll() is None, f"{PROGRAM} ended with {process.returncode}"
        assert time.monotonic() < end, f"{PROGRAM} did not start in {DEADLINE:g} s"
        pause.wait(0.05)
