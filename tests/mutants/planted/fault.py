"""One planted fault: what somebody might have written instead, and the promise that it breaks."""

import ast
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final

from tests.harness.promises import ROOT, Test, all_tests
from tests.mutants.patching import Stale

__all__ = ["Fault", "Result", "Workshop", "naming"]

COPIED: Final = (
    "flow",
    "publishers",
    "pyspark_penstock",
    "transports",
    "tests",
    "examples",
    "docs",
    "benchmarks",
)
FILES: Final = (
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "LICENSE",
)
ASIDE: Final = (
    "tests/harness",
    "tests/mutants",
    "tests/soak",
    "tests/servers",
    "tests/browser",
    "tests/benchmarks",
    "tests/model/test_queue_mutants.py",
)
"""Tests that are about tests, or that a machine may lack the programs for."""
SLOW: Final = (
    "tests/crash",
    "tests/clients",
    "tests/examples",
    "tests/simulation",
    "tests/history",
    "tests/publishers/spark",
)
"""Tests that are run after the others: most faults have been noticed before."""
NEAREST: Final = 6


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        row: Row of docs/features.md whose tests must notice.
        path: File, relative to the root.
        old: Text that the file has exactly once.
        new: Text that it has instead.
        breaks: What it does to a user, in words.
    """

    row: str
    path: str
    old: str
    new: str
    breaks: str

    def changed(self, text: str) -> str:
        """Returns the text of the file with the fault.

        Raises:
            Stale: If the file has moved on.
        """
        if text.count(self.old) != 1:
            raise Stale(f"{self}: {self.path} has {self.old!r} {text.count(self.old)} times")
        changed = text.replace(self.old, self.new)
        if self.path.endswith(".py"):
            ast.parse(changed)
        return changed

    def __str__(self) -> str:
        return f"{self.row}: {self.breaks}"


@dataclass(frozen=True)
class Result:
    """What became of a fault.

    Attributes:
        fault: The fault.
        by: Test that noticed; empty if none did.
        seconds: How long it took.
    """

    fault: Fault
    by: str
    seconds: float

    def __str__(self) -> str:
        return f"| {self.fault} | {self.by or '**survived**'} | {self.seconds:.0f} |"


def naming(row: str, near: str = "") -> list[Test]:
    """Returns the tests that name a row, those beside the file ``near`` first and slow ones last."""
    folder, name = os.path.split(near)
    mirrored = os.path.join("tests", folder, f"test_{name}")

    def rank(test: Test) -> tuple[bool, int, str]:
        near_by = len(os.path.commonprefix([mirrored, test.path]))  # noqa: RUF071 - characters, not parts
        return (test.path.startswith(SLOW), -near_by, test.path)

    return sorted(
        (test for test in all_tests() if row in test.ids and not test.path.startswith(ASIDE)), key=rank
    )


class Workshop:
    """A copy of the project, in which faults are planted one after another; the project itself stays as it is."""

    def __init__(self, directory: Path, *, limit: float = 300.0) -> None:
        """Copies the project.

        Args:
            directory: Empty directory for the copy.
            limit: Seconds that the tests of one fault may take in all; beyond it the fault has survived.
        """
        self.root = directory
        self._limit = limit
        directory.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            copytree(
                ROOT / name, self.root / name, ignore=ignore_patterns("node_modules", ".*"), symlinks=True
            )
        for name in FILES:
            (self.root / name).write_bytes((ROOT / name).read_bytes())

    def try_out(self, fault: Fault) -> Result:
        """Plants a fault, lets the tests that name its row look for it, and takes it out again."""
        began = time.monotonic()
        place = self.root / fault.path
        sound = place.read_text()
        self._write(place, fault.changed(sound))
        try:
            failed = self._failed([_address(test) for test in naming(fault.row, fault.path)], "--exitfirst")
        finally:
            self._write(place, sound)
        return Result(fault, failed[0] if failed else "", time.monotonic() - began)

    def noticed(self, faults: Collection[Fault]) -> set[str]:
        """Plants faults of different files and rows at once, and runs the `NEAREST` tests that name each row.

        Returns:
            The rows of which a test fails.
        """
        for fault in faults:
            place = self.root / fault.path
            self._write(place, fault.changed(place.read_text()))
        tests = {
            _address(test): fault.row for fault in faults for test in naming(fault.row, fault.path)[:NEAREST]
        }
        failed = self._failed(list(tests))
        return {row for address, row in tests.items() if any(one.split("[")[0] == address for one in failed)}

    def unsound(self, results: Collection[Result]) -> list[Result]:
        """Returns those results whose test fails in the copy without the fault too, so that it has noticed nothing."""
        tests = sorted({result.by for result in results} - {""})
        failed = self._failed(tests) if tests else []
        return [result for result in results if result.by and result.by in failed]

    def _write(self, place: Path, text: str) -> None:
        place.write_text(text)
        for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*"):
            compiled.unlink()  # a compiled file of the same second and length would be taken for that of the new text

    def _failed(self, addresses: Sequence[str], *options: str) -> list[str]:
        with (
            tempfile.NamedTemporaryFile("w", suffix=".txt") as listed,
            tempfile.TemporaryDirectory() as scratch,
        ):
            listed.write("\n".join(addresses))
            listed.flush()
            output = Path(scratch) / "output"
            with output.open("wb") as sink:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "pytest",
                        "-q",
                        "-n0",
                        "-p",
                        "no:cacheprovider",
                        "-rfE",
                        "--tb=no",
                        "--timeout=60",
                        *options,
                        f"@{listed.name}",
                    ],
                    cwd=self.root,
                    env={**os.environ, "PYTHONPATH": f"{self.root}:{self.root / 'examples' / 'flights'}"},
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(self._limit)
                finally:
                    _end(process)
            text = output.read_text(errors="replace")
        return [
            line.split(" ", 1)[1].split(" - ")[0]
            for line in text.splitlines()
            if line.startswith(("FAILED ", "ERROR "))
        ]


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _address(test: Test) -> str:
    return f"{test.path}::{test.name.replace('.', '::')}"
