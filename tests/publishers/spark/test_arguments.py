"""Whatever a sink is given, it says what is wrong with it before Spark runs."""

import math

import pytest

from penstock_cdc.errors import PenstockError
from publishers import ChangeLog
from publishers.spark import ChangeSink

WRONG = (
    None,
    True,
    -1,
    0,
    5,
    1.5,
    math.nan,
    "",
    "x",
    "\ud800",
    b"x",
    [],
    (),
    {},
    ["a", "a"],
    [1],
    [None],
    {"a": 1},
    int,
)
USUAL = {
    "entity_type": "a",
    "key": "id",
    "name": None,
    "operation": "upsert",
    "operation_column": None,
    "order_by": (),
    "operations": None,
    "on_bad_row": "fail",
    "dead_letters": None,
    "bad_rows_max": 1,
    "body": None,
    "before": None,
    "producer": None,
    "tell_schema": None,
    "on_rerun": "trust",
    "stall_timeout": 60.0,
    "collect_bytes": 1024,
}


@pytest.mark.parametrize("parameter", [*USUAL, "entity_type_column"])
def test_every_argument_is_checked(parameter, tmp_path):
    with ChangeLog.open(tmp_path / "log", sync="os", fill_step=0) as log:
        for value in WRONG:
            try:
                sink = ChangeSink(log, **(USUAL | {parameter: value}))
            except PenstockError as error:
                told = str(error)
            else:
                told = sink.name
            assert told


@pytest.mark.parametrize("log", [None, "var/orders", 5])
def test_a_log_is_one(log):
    with pytest.raises(PenstockError, match="a ChangeLog that is open for writing"):
        ChangeSink(log, entity_type="a", key="id")
