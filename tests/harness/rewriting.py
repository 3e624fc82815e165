"""Divides the rewriting of assertions among the workers.

In a fresh clone each worker would rewrite every test, which is half of the time for collection. Here each worker rewrites its share
and stores the compiled code beside the tests, where the other workers find it.
"""

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYC_TAIL, _rewrite_test, _write_pyc, get_cache_dir, try_makedirs
from _pytest.assertion.rewrite import assertstate_key as assertion_state

__all__ = ["rewrite_share"]


def rewrite_share(config: pytest.Config) -> None:
    """Rewrites the tests of this worker's share without compiled code; does nothing unless the run is of all tests."""
    worker = getattr(config, "workerinput", None)
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if worker is None or not whole or sys.dont_write_bytecode or assertion_state not in config.stash:
        return
    number, workers = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for test in sorted(Path(config.rootpath, "tests").rglob("test_*.py"))[number::workers]:
        compiled = get_cache_dir(test) / (test.name.removesuffix(".py") + PYC_TAIL)
        if not compiled.exists() and try_makedirs(compiled.parent):
            source, code = _rewrite_test(test, config)
            _write_pyc(config.stash[assertion_state], code, source, compiled)
