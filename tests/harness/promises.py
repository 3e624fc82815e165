"""Finds the tests for each promise of README and each row of docs/features.md, counts their assertions, and reads what they came to.

``make promises`` prints them. A row works if a test names its id: in the test itself (name, docstring, parameters), in the
text of its class, or in the text of its module outside of functions. ``--mark`` only adds marks; they are removed by hand, so
that a row that loses its last test is noticed.

``make test``, ``make servers`` and ``make servers-sample`` leave their results in ``build/results``. If there are any, a promise or
row none of whose tests passed there is not held: it is named, and the command fails. A skipped test holds nothing.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

# ruff: noqa: T201 - a command that prints

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TABLE = ROOT / "docs" / "features.md"
RESULTS = ROOT / "build" / "results"
PARTLY = {
    "F107": "changes are copied with origin and entry version by a subscriber of your own",
    "F117": "in the log itself",
    "F187": "orders on slots and groups, schemas, and calls of consumers; not those on sinks, history and appends",
    "E57": "untyped",
}
ID = re.compile(r"\b[FE]\d{1,3}\b")
ROW = re.compile(r"^\| ([FE]\d+) \| (.*) \|(.*)\|$")
PROMISE = re.compile(r"^\| (.+?) \| (.*(?:`tests/|`make ).*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Test:
    """A test function, or a class that inherits its tests from the verification kit.

    Attributes:
        path: Path of its file, relative to the root.
        name: Name, including the class.
        ids: Ids of the rows that it names.
        assertions: Number of its assertions, including those of helpers in its file; 0 for classes of the kit.
    """

    path: str
    name: str
    ids: frozenset[str]
    assertions: int

    def __str__(self) -> str:
        return f"{self.path}::{self.name}"

    def passed(self, cases: frozenset[str]) -> bool:
        """Whether it is one of those that passed, with any of its parameters; of a class that inherits its tests, any of them."""
        name = f"{self.path.removesuffix('.py').replace('/', '.')}.{self.name}"
        return name in cases


@cache
def all_tests(root: Path = ROOT) -> list[Test]:
    """Returns all tests that ``make test`` runs."""
    found: list[Test] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        found += _Module(str(path.relative_to(root)), path.read_text()).tests()
    return found


class _Module:
    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.tree = ast.parse(text)
        self.helpers = {
            node.name: node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def tests(self) -> Iterator[Test]:
        yield from self._inside(self.tree.body, "", frozenset(ID.findall(self._outside(self.tree))))

    def _inside(self, body: list[ast.stmt], before: str, known: frozenset[str]) -> Iterator[Test]:
        for node in body:
            match node:
                case ast.ClassDef() if node.name.startswith("Test"):
                    ids = known | frozenset(ID.findall(self._outside(node)))
                    inside = list(self._inside(node.body, f"{node.name}.", ids))
                    yield from inside or [Test(self.path, node.name, ids, 0)]
                case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                    ids = known | frozenset(ID.findall(self._text(node)))
                    yield Test(self.path, before + node.name, ids, self._assertions(node, set()))
                case _:
                    continue

    def _text(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        return "\n".join(self.lines[first - 1 : node.end_lineno])

    def _outside(self, node: ast.Module | ast.ClassDef) -> str:
        """Returns the text of a module or a class without its functions and classes."""
        kept = self.lines if isinstance(node, ast.Module) else self._text(node).splitlines()
        text = "\n".join(kept)
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                text = text.replace(self._text(inner), "")
        return text

    def _assertions(self, node: ast.AST, seen: set[str]) -> int:
        count = 0
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assert):
                count += 1
            elif isinstance(inner, ast.Call):
                name = ast.unparse(inner.func)
                count += name in ("pytest.raises", "pytest.fail", "pytest.warns")
                if name in self.helpers and name not in seen and self.helpers[name] is not node:
                    seen.add(name)
                    count += self._assertions(self.helpers[name], seen)
        return count


def passed(results: Iterable[Path]) -> frozenset[str]:
    """Returns the tests and classes of which a case passed, from JUnit files: ``tests.flow.test_x.TestY.test_z``."""
    found: set[str] = set()
    for path in results:
        for case in ET.parse(path).iter("testcase"):
            if not {"skipped", "failure", "error"} & {one.tag for one in case}:
                place = case.get("classname", "")
                found |= {place, f"{place}.{case.get('name', '').partition('[')[0]}"}
    return frozenset(found)


def promises() -> dict[str, list[str]]:
    """Returns the promises of README, each with the parts of ``tests`` that prove it."""
    return {row[1]: re.findall(r"`(tests/[\w/]+)`", row[2]) for row in PROMISE.finditer(README.read_text())}


def marks(text: str) -> dict[str, str]:
    """Returns the mark of each row of the table."""
    return {row[1]: row[3].strip() for line in text.splitlines() if (row := ROW.match(line))}


def marked(text: str, works: frozenset[str]) -> str:
    """Returns the table with its present marks, and a mark for each row in ``works``."""
    lines: list[str] = []
    for line in text.splitlines():
        if (row := ROW.match(line)) and row[1] in works:
            line = f"| {row[1]} | {row[2]} | {f'partly: {PARTLY[row[1]]}' if row[1] in PARTLY else 'yes'} |"  # noqa: PLW2901 - the same line, marked
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the promises and rows with their tests, or marks the rows."""
    parser = argparse.ArgumentParser(prog="make promises", description=main.__doc__)
    parser.add_argument(
        "--mark", action="store_true", help="mark the rows of docs/features.md that a test names"
    )
    parser.add_argument("--tests", action="store_true", help="print each test, not only how many there are")
    chosen = parser.parse_args()
    known = all_tests()
    if chosen.mark:
        TABLE.write_text(marked(TABLE.read_text(), frozenset().union(*(test.ids for test in known))))
        return
    results = sorted(RESULTS.glob("*.xml"))
    cases = passed(results) if results else None
    held = [
        _held(promise, [test for test in known if test.path.startswith(tuple(places))], cases, every=False)
        for promise, places in promises().items()
    ]
    for row, mark in marks(TABLE.read_text()).items():
        holding = [test for test in known if row in test.ids]
        held.append(_held(row, holding, cases if mark else None, every=chosen.tests))
    if not results:
        print("no results in build/results: make test leaves them there")
    elif not all(held):
        sys.exit(f"{held.count(False)} promises are not held: none of their tests passed")


def _held(what: str, holding: list[Test], cases: frozenset[str] | None, *, every: bool) -> bool:
    """Prints a promise, and returns whether one of its tests passed; None for ``cases`` asks for no result."""
    good = holding if cases is None else [test for test in holding if test.passed(cases)]
    skipped = "" if len(good) == len(holding) else f", {len(holding) - len(good)} of them skipped or failed"
    told = f"{what}: {len(holding)} tests, {sum(test.assertions for test in holding)} assertions{skipped}"
    print(told if good or cases is None else f"{told}: NOT HELD")
    for test in holding if every else ():
        print(f"    {test}: {test.assertions}")
    return bool(good) or cases is None


if __name__ == "__main__":
    main()
