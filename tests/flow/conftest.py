from collections.abc import Iterator

import pytest

from tests.flow.probes import Dropped, dropped_errors


@pytest.fixture
def dropped() -> Iterator[Dropped]:
    with dropped_errors() as errors:
        yield errors
