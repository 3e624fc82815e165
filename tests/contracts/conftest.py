"""Runs each contract by its faces: all that the module names, but those that cannot do what a test needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from publishers import ChangeLog
from tests.contracts.place import Place
from tests.publishers.support import scratch
from tests.simulation.workload import Clock


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*verbs): what a face has to be able to do for a test of a contract"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    faces = getattr(metafunc.module, "FACES", ())
    if "verb" in metafunc.fixturenames:
        pairs = [(one, verb) for one in faces for verb in one.cannot]
        names = [f"{one.name}:{verb}" for one, verb in pairs]
        metafunc.parametrize(("face", "verb"), pairs, indirect=["face"], ids=names)
    elif "face" in metafunc.fixturenames:
        needs = {verb for mark in metafunc.definition.iter_markers("needs") for verb in mark.args}
        able = [one for one in faces if not needs & {*one.cannot, *one.lacks}]
        metafunc.parametrize("face", able, indirect=True, ids=[one.name for one in able], scope="module")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    place = Place(Path(scratch()))
    yield place
    place.close()


@pytest.fixture(scope="module")
def made(place: Place) -> dict[type, Any]:
    """The faces of the module that were made."""
    return {}


@pytest.fixture(scope="module")
def face(request: pytest.FixtureRequest, place: Place, made: dict[type, Any]) -> Any:
    if request.param not in made:
        made[request.param] = request.param(place)
        place.at_end(made[request.param].close)
    return made[request.param]


@pytest.fixture
def log(place: Place, face: Any) -> Iterator[ChangeLog]:
    with place.open() as log:
        face.begin(log)
        yield log
        face.end()
    del place.logs[log.name]


@pytest.fixture
def clock(place: Place) -> Clock:
    return place.clock
