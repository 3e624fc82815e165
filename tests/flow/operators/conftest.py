import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _what_was_there_before_is_not_collected() -> Iterator[None]:
    """Tests of references collect often; without what pytest and its plug-ins hold, that is quick."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
