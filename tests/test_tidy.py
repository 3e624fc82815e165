"""The house rules that no other tool checks."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("flow", "publishers", "transports")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
OUTSIDE_THE_FILESYSTEM = {"publishers/wal/filesystem.py"}


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_is_one_idea(path):
    assert len(path.read_text().splitlines()) <= 400, "more than 400 lines are two ideas"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_function_is_one_idea(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 80, f"{node.name} wants to be two functions"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_what_a_module_exports_exists(path):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if path.name == "__main__.py":
        return
    loaded = importlib.import_module(module)
    for exported in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, exported), exported


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_exports(package):
    assert importlib.import_module(package).__all__


def test_the_write_ahead_log_reaches_the_disk_through_its_filesystem_only():
    for path in (ROOT / "publishers" / "wal").glob("*.py"):
        if name(path) in OUTSIDE_THE_FILESYSTEM:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {"os", "io", "mmap", "fcntl", "shutil"} & {alias.name for alias in node.names}, (
                    name(path)
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", name(path)


def test_no_test_sleeps():
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__):
            continue
        found = re.search(r"\btime\.sleep\(|asyncio\.sleep\((?!0\))", path.read_text())
        assert found is None, f"{name(path)} sleeps: wait for a condition instead"


def test_every_suppression_says_why():
    for path in SOURCES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"# (type: ignore|noqa)", line):
                assert re.search(r"# (type: ignore\[[\w, -]+\]|noqa: [\w, ]+)\s*(#|-) \S", line), (
                    f"{name(path)}:{number}"
                )
