"""What has no public name: of other packages used in one place each, of our own objects seldom by tests, and ever less."""

import ast
import re
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flow", "publishers", "pyspark_penstock", "transports", "examples/flights/penstock_flights")

PLACES = {
    "pyspark": "publishers/spark/inside.py",
    "redis": "transports/sinks/cache_connection.py",
    "strawberry-graphql": "transports/graphql/inside.py",
    "uvicorn": "transports/server",
}
"""Where the private parts of a package are used. uvicorn's classes are extended: all of that is in one folder."""

PARTS = {
    "pyspark": (
        "pyspark.util:_load_from_socket",
        "pyspark:SparkContext._active_spark_context",
    ),
    "redis": (
        "redis:Connection._connect",
        "redis:SSLConnection._connect",
        "redis:UnixDomainSocketConnection._connect",
    ),
    "strawberry-graphql": ("strawberry.types.info:Info.__annotations__._raw_info", "strawberry:Schema"),
    "uvicorn": (
        "uvicorn.server:Server.startup",
        "uvicorn.server:ServerState",
        "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol",
        "uvicorn.protocols.websockets.auto:AutoWebSocketsProtocol",
    ),
}
"""Some of them, by module; the tests of the package look at the rest."""

OURS = (
    "flow/drain/drain.py", "flow/drain/strand.py", "flow/interrupts.py", "flow/tck/extra.py",  # of flow and of sys
    "transports/cli/arguments.py", "transports/cli/completion.py",  # of argparse
    "transports/http/changes.py",  # a class of the same module
    "transports/sinks/bounded.py",  # of socket, as its own makefile
    "transports/sinks/kafka.py", "transports/sinks/kafka_errors.py",  # names of librdkafka's errors, which are public
)  # fmt: skip
"""What is private of this project or of the standard library."""

TESTS_USE, TESTS_PATCH = 672, 314
"""How often tests use the private name of another object, and set an attribute of one. Who lowers a number writes it here; the
goal is 300 and 100. What many tests need stands once, with the reason, in `tests.harness.inside` and `tests.harness.constants`."""

PUBLIC = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
"""Public names of the standard library that begin as private ones do."""


def sources():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text()


def requirements():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(one for each in extras.values() for one in each)]


def is_private(name):
    return re.match(r"_[^_]", name) is not None and name not in PUBLIC


def names_of(node):
    """The private names that a node of a syntax tree uses of another object."""
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        return [] if own else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and called(node) in {"delattr", "getattr", "hasattr", "setattr"}:
        texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
        return [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
    return []


def called(node):
    return getattr(node.func, "attr", None) or getattr(node.func, "id", None)


def made_in(nodes):
    """The names that a file gives by itself, to functions, classes and attributes of its own objects."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield from [node.attr] * (isinstance(node.value, ast.Name) and node.value.id == "self")


def used_by(tree):
    """How often a file uses the private name of another object, and how often it patches one."""
    nodes = list(ast.walk(tree))
    own = set(made_in(nodes))
    uses = sum(is_private(name) and name not in own for node in nodes for name in names_of(node))
    patches = sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and called(node) in {"delattr", "setattr"}
        for node in nodes
    )
    return uses, patches


def test_what_a_test_uses_of_another_object_is_counted():
    text = """
from publishers.wal import _STEP, Wal
log._files._asdict()
self._own, self.made = 1, log._made
monkeypatch.setattr(log, "_files", None)
monkeypatch.setattr("publishers.wal._STEP", 2)
class _Mine: pass
module._Mine, log.__dict__, getattr(log, "_files")
"""
    assert used_by(ast.parse(text)) == (6, 2)


def test_tests_use_the_private_names_of_other_objects_ever_less():
    counted = [used_by(ast.parse(path.read_text())) for path in (ROOT / "tests").rglob("*.py")]
    uses, patches = (sum(column) for column in zip(*counted, strict=True))
    assert uses <= TESTS_USE, "take statistics, an option, an injected clock, or tests.harness.inside"
    assert patches <= TESTS_PATCH, (
        "take an option, an injected clock or file system, or tests.harness.constants"
    )


def test_private_parts_of_other_packages_are_used_in_one_place_each():
    places = tuple(PLACES.values())
    for name, text in sources():
        if "SLF001" in text:
            assert name in OURS or name.startswith(places), name
        for line in re.sub(r" as _\w+", "", text).splitlines():
            if re.match(r"\s*(from|import) uvicorn\.", line):
                assert name.startswith(PLACES["uvicorn"]), (name, line)
            if re.match(
                r"\s*from (?!__future__)(?!flow|publishers|transports|penstock)[\w.]+ import .*\b_(?!_)\w",
                line,
            ):
                assert name.startswith(places), (name, line)


@pytest.mark.parametrize("package", PLACES)
def test_their_versions_are_bounded_and_have_these_parts(package):
    """A version in which one is missing has to be left out by the bounds."""
    if package == "pyspark":
        pytest.importorskip("pyspark")
    (bounds,) = {one for one in requirements() if re.match(rf"{package}\b", one)}
    low, high = re.fullmatch(rf"{package}>=([\d.]+),<([\d.]+)", bounds).groups()

    def numbers(text):
        return tuple(int(part) for part in re.findall(r"\d+", text)[:3])

    assert numbers(low) <= numbers(version(package)) < numbers(high), f"{package} {version(package)}"
    for part in PARTS[package]:
        module, _, names = part.partition(":")
        found = import_module(module)
        for name in names.split("."):
            known = found if isinstance(found, dict) else None
            assert name in known if known is not None else hasattr(found, name), (
                f"{package} {version(package)} has no {part}"
            )
            found = known[name] if known is not None else getattr(found, name)
