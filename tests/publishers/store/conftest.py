"""A store that is open for writing, and its directory."""

import pytest

from publishers.store.store import ChangeStore
from tests.publishers.support import QUICK


@pytest.fixture
def place(tmp_path):
    return tmp_path / "shop"


@pytest.fixture
def store(place):
    with ChangeStore.open(place, **QUICK) as store:
        yield store
