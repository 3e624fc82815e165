"""One process of Node with penstock.js, for a module."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.contracts.faces import Refused
from tests.contracts.place import Place
from tests.harness.missing import skip_without

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "transports" / "browser" / "penstock.js"


class Node:
    """The process; one client in it is connected to the server of a place."""

    def __init__(self, place: Place, directory: Path) -> None:
        if shutil.which("node") is None:
            skip_without("Node")
        module = directory / "penstock.mjs"  # so that any Node takes it for a module
        shutil.copy(SOURCE, module)
        command = [
            "node",
            "--experimental-websocket",
            "--no-warnings",
            str(HERE / "javascript.mjs"),
            str(module),
            place.server.url,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._last = 0
        self._answers: dict[int, dict[str, Any]] = {}

    def start(self, on: str, call: str, *args: Any, **more: Any) -> int:
        """Calls a method of what is kept under a name; ``wait`` has the result."""
        self._last += 1
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({"n": self._last, "on": on, "call": call, "args": args, **more}) + "\n"
        )
        self._process.stdin.flush()
        return self._last

    def wait(self, number: int) -> Any:
        """The result of a call.

        Raises:
            Refused: If it was rejected.
        """
        assert self._process.stdout is not None
        while number not in self._answers:
            line = self._process.stdout.readline()
            assert line, "Node has ended"
            answer = json.loads(line)
            self._answers[answer["n"]] = answer
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"]["code"], answer["error"]["data"])
        return answer["value"]

    def call(self, on: str, call: str, *args: Any, **more: Any) -> Any:
        return self.wait(self.start(on, call, *args, **more))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
