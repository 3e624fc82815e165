"""The house rules that no other tool checks."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("flow", "publishers", "transports", "penstock_cdc")
FLIGHTS = ROOT / "examples" / "flights"
FOLDERS = [*(ROOT / package for package in PACKAGES), FLIGHTS]
SOURCES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))
FILES_MOST = 593
"""Files of the packages, which only gets lower: more files are more places to look for one thing."""
ON_A_LOOP_OF_ITS_OWN = {"publishers/spark/server_log.py"}
OUTSIDE_THE_FILESYSTEM = {
    f"publishers/wal/disk/{one}.py" for one in ("descriptors", "filesystem", "modes", "notify")
}


def name(path):
    return str(path.relative_to(ROOT))


def lines_of_code(text):
    """Lines that are neither blank nor a comment nor in a docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in docstrings and bool(line.partition("#")[0].strip()) for number, line in lines)


def test_a_module_is_one_idea():
    for path in SOURCES:
        count = lines_of_code(path.read_text())
        assert count <= 400, f"{name(path)}: {count} lines of code are two ideas, at most 400 are one"


def test_a_small_part_of_an_idea_has_no_file_of_its_own():
    count = sum(not path.is_relative_to(FLIGHTS) for path in SOURCES)
    assert count <= FILES_MOST, f"{count} files: let what always changes together be in one file"


def test_docstrings_comments_and_blank_lines_are_no_code():
    text = '"""One."""\n\n# two\ndef three():  # code\n    """Four\n    five."""\n    return 6\n'
    assert lines_of_code(text) == 2


def test_a_function_is_one_idea():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 80, (
                    f"{name(path)}: {node.name} wants to be two functions"
                )


def test_what_a_module_exports_exists():
    for path in SOURCES:
        if path.name == "__main__.py":
            continue
        module = ".".join(
            path.relative_to(FLIGHTS if FLIGHTS in path.parents else ROOT).with_suffix("").parts
        ).removesuffix(".__init__")
        loaded = importlib.import_module(module)
        for exported in getattr(loaded, "__all__", ()):
            assert hasattr(loaded, exported), f"{module}.{exported}"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_exports(package):
    assert importlib.import_module(package).__all__


def test_the_write_ahead_log_reaches_the_disk_through_its_filesystem_only():
    for path in (ROOT / "publishers" / "wal").rglob("*.py"):
        if name(path) in OUTSIDE_THE_FILESYSTEM:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {"os", "io", "mmap", "fcntl", "shutil"} & {alias.name for alias in node.names}, (
                    name(path)
                )
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", name(path)


def test_nothing_waits_for_a_thread_of_the_default_pool_of_an_event_loop():
    """Calls of the application that block may occupy all of them, even for ever."""
    for path in SOURCES:
        if name(path) not in ON_A_LOOP_OF_ITS_OWN:
            found = re.search(r"(?<!trio\.)\bto_thread\b|run_in_executor\(\s*None\b", path.read_text())
            assert found is None, f"{name(path)} needs a free thread of the default pool"


def test_no_test_sleeps():
    for path in (ROOT / "tests").rglob("test_*.py"):  # who waits for a condition stands in conftest.py
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
