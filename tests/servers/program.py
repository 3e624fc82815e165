"""A server of others as a process that a test starts, stops, kills, pauses and starts again, with the data that it had."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

from tests.harness.missing import skip_without
from tests.harness.ports import free_port

HERE = Path(__file__).parent


class Program(ABC):
    """A server on a port of 127.0.0.1, which is the same after it was started again.

    Args:
        folder: For its data and what it prints; it is made.
        boot: Seconds in which it has to answer.
    """

    name = "server"
    left_over: tuple[str, ...] = ()
    """What it may print where processes of a killed one have not ended yet, so that it is started again."""

    def __init__(self, folder: Path, boot: float = 120.0) -> None:
        self.folder = folder
        self.port = free_port()
        self._boot = boot
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it does what it is there for."""

    def environment(self) -> dict[str, str]:
        """Its variables."""
        return dict(os.environ)

    @property
    def printed(self) -> str:
        """The end of what it has printed."""
        path = self.folder / "printed.txt"
        return path.read_text("utf-8", "replace")[-4000:] if path.exists() else ""

    def start(self) -> Self:
        """Starts it, and returns when it answers."""
        assert self.process is None
        self.process = self._begin()
        end = time.monotonic() + self._boot
        while not self._answers_now():
            assert time.monotonic() < end, f"{self.name} does not answer: {self.printed}"
            if self.process.poll() is not None:
                said = self.printed[-1000:]
                assert any(one in said for one in self.left_over), f"{self.name} has ended: {said}"
                self.process = self._begin()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.05)
        return self

    def _begin(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "printed.txt").open("ab") as out:
            return subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers_now(self) -> bool:
        try:
            return self.answers()
        except Exception:
            return False

    def stop(self) -> None:
        """Ends it in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Lets it do nothing, while its connections stay."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Ends a pause."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()


def java() -> str:
    """The Java that runs servers."""
    found = shutil.which("java")
    if found is None:
        skip_without("Java 17 or newer")
    return found


def jars(kind: str) -> list[Path]:
    """The libraries that ``KIND/pom.xml`` names, which ``make servers`` brings into ``KIND/jars``."""
    kept = HERE / kind / "jars"
    if not (kept / ".complete").exists():
        skip_without(f"the libraries of tests/servers/{kind} (make servers brings them, with Java and Maven)")
    return sorted(kept.glob("*.jar"))


def bring(kind: str) -> None:
    """Has Maven bring the libraries that ``KIND/pom.xml`` names, once."""
    place = HERE / kind
    kept = place / "jars"
    if (kept / ".complete").exists():
        return
    command = ["mvn", "-q", "-B", "-f", str(place / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={kept}"], check=True, timeout=900)
    (kept / ".complete").touch()


def build(place: Path) -> None:
    """Makes the programs of a folder of clients: classes of Java beside their libraries, packages of Node, a program of Go."""
    if sources := sorted(map(str, place.glob("With*.java"))):
        libraries = str(place / "jars" / "*")
        shared = str(place / "Lines.java")
        subprocess.run(
            ["javac", "-nowarn", "-d", str(place / "jars"), "-cp", libraries, shared, *sources], check=True
        )
    if (place / "package.json").exists():
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, check=True)
    if (place / "go.mod").exists():
        subprocess.run(["go", "build", "-o", "built", "."], cwd=place, check=True)


def attempt(what: Callable[[], object]) -> None:
    """Does what this machine can do: what it lacks is told by the tests that are skipped."""
    try:
        what()
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"not installed: {error}\n")


if __name__ == "__main__":
    poms = [pom.parent for pattern in ("*/pom.xml", "clients/*/pom.xml") for pom in HERE.glob(pattern)]
    for kind in sys.argv[1:] or sorted(str(folder.relative_to(HERE)) for folder in poms):
        attempt(partial(bring, kind))
    for folder in sorted(HERE.glob("clients/*/")) if not sys.argv[1:] else ():
        attempt(partial(build, folder))
