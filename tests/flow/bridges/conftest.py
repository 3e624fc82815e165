import asyncio
import gc
import sys

import pytest

from tests.harness.debugging import is_slowness
from tests.tck.places import UVLOOP, needs_uvloop, new_loop

EAGER = hasattr(asyncio, "eager_task_factory")  # from Python 3.12 on
KINDS = ["plain", "debug", *["eager"] * EAGER, pytest.param("uvloop", marks=needs_uvloop)]


class Abandoned:
    """Loops that are stopped after some turns and closed over whatever they have begun, as no honest program does."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.loop: asyncio.AbstractEventLoop | None = None

    def new(self) -> asyncio.AbstractEventLoop:
        self.loop = new_loop(self.kind)
        if self.kind == "eager":
            self.loop.set_task_factory(asyncio.eager_task_factory)
        return self.loop

    def run(self, turns: int) -> None:
        """Run the loop for so many turns."""
        left = turns

        def turn() -> None:
            nonlocal left
            left -= 1
            if left > 0:
                self.loop.call_soon(turn)
            else:
                self.loop.stop()

        if turns:
            self.loop.call_soon(turn)
            self.loop.run_forever()

    def close(self) -> None:
        self.loop.close()
        self.loop = None


@pytest.fixture(scope="session")
def pipe_of_uvloop() -> None:
    """The first loop of uvloop opens a pipe for signals, which the process keeps."""
    if UVLOOP:
        new_loop("uvloop").close()


@pytest.fixture(params=KINDS)
def abandoned(request: pytest.FixtureRequest, pipe_of_uvloop: None) -> Abandoned:
    return Abandoned(request.param)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Nothing is logged by the test, nor found when all is collected that it left behind."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: found.append(repr(unraisable)))
    gc.collect()
    found.clear()  # what others left
    yield
    gc.collect()
    assert found == []
    told = [record.getMessage() for record in caplog.get_records("call")] + caplog.messages
    assert [line for line in told if not is_slowness(line)] == []
