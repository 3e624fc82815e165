"""Workers share the rewriting of assertions: in a fresh clone each of them would rewrite every test, and that is half of collecting them.

What one has rewritten lies beside the test as compiled code, and the others find it there.
"""

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import PYC_TAIL, _rewrite_test, _write_pyc, get_cache_dir, try_makedirs
from _pytest.assertion.rewrite import assertstate_key as assertion_state

__all__ = ["rewrite_share"]


def rewrite_share(config: pytest.Config) -> None:
    """Rewrites what no worker has rewritten yet of this worker's share; in a run of some tests only, nothing."""
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
