"""What of other packages is used that has no public name: in one place for each, with versions that are bounded."""

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
    "flow/drain/drain.py", "flow/drain/strand.py", "flow/interrupts.py", "flow/tck/stress.py",  # of flow and of sys
    "transports/cli/arguments.py", "transports/cli/completion.py",  # of argparse
    "transports/http/changes.py",  # a class of the same module
    "transports/sinks/kafka.py", "transports/sinks/kafka_errors.py",  # names of librdkafka's errors, which are public
)  # fmt: skip
"""What is private of this project or of the standard library."""


def sources():
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text()


def requirements():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(one for each in extras.values() for one in each)]


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
