"""The verification kit of Reactive Streams, for publishers and subscribers of your own; it needs pytest.

As a plugin of pytest, ``pytest_plugins = ["penstock_cdc.tck"]`` in the topmost conftest, it registers the mark ``rs``.
"""

import flow.tck as _kit
from flow.tck import *  # noqa: F403 - the whole kit, see __all__ there
from flow.tck.suite import pytest_configure

__all__ = ["pytest_configure"]
__all__ += _kit.__all__
