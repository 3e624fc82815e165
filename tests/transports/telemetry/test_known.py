"""Counters exist before they count: an alert on an increase fires for the first error after a start."""

import re
from pathlib import Path

import pytest

from publishers import Area
from tests.transports.telemetry.test_prometheus import fetch, read
from transports import serve_resp
from transports.errors import CloseCode
from transports.problems import ERROR_CODES
from transports.resp.commands import COMMANDS
from transports.resp.errors import _GROUPS, _WORDS
from transports.telemetry.table import RESP_COMMANDS, RESP_ENDINGS, RESP_ERRORS, TABLE, MetricKind

ROOT = Path(__file__).parents[3] / "transports"
NAMES = {"group", "query", "sink"}
"""Labels whose values users choose: their counters begin with what has the name."""


def sources(*folders):
    return "".join(path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))


def told(pattern, *folders):
    return set(re.findall(pattern, sources(*folders)))


VALUES = {
    "penstock_connections_ended_total": {
        *CloseCode.__members__,
        *told(r'(?:_?ended\(|self\.ending or )"([A-Z_]+)"', "server", "tcp"),
    },
    "penstock_errors_total": set(ERROR_CODES),
    "penstock_appends_total": {"WRITTEN", "DUPLICATE", *ERROR_CODES},
    "penstock_resp_connections_ended_total": {
        *told(r'_?ended\("([A-Z_]+)"', "tcp"),
        *told(r'(?:_end\(|self\._why or |self\._why = True, )"([A-Z_]+)"', "resp"),
    },
    "penstock_resp_commands_total": {*COMMANDS, "UNKNOWN"},
    "penstock_resp_errors_total": {
        *ERROR_CODES,
        *told(r'RespError\(\s*"([A-Z_]+)"', "resp"),
        *(word for _, word, _ in _GROUPS),
        *_WORDS.values(),
        "NOAUTH",
    },
    "penstock_log_delivered_total": {area.name for area in Area},
}
"""What the code may count, by counter; where it is not one table, as its sources say."""


@pytest.mark.parametrize(
    "metric", [one for one in TABLE if one.kind is MetricKind.COUNTER], ids=lambda one: one.name
)
async def test_a_counter_has_each_value_of_its_label_at_0_from_the_start(metric, started):
    """F135, F161."""
    samples = {labels: value for (name, labels), value in started.items() if name == metric.name}
    assert not metric.labels or set(samples.values()) <= {0.0}  # opening the log has synced it
    closed = [label for label in metric.labels if label not in NAMES]
    found = {dict(labels)[label] for labels in samples for label in closed}
    assert found == VALUES.get(metric.name, set())
    kinds = ("penstock_sink_", "penstock_log_state_")  # what this server has none of
    assert samples or metric.name.startswith(kinds)


@pytest.fixture
async def started(log, serving):
    """The metrics of a server that nobody has asked anything, with a group and a query."""
    log.groups.create("pickers")
    query = {"state": "RUNNING", "batch": 0, "batches": 0, "rows": 0, "inputRate": 0, "rate": 0, "seconds": {}, "behind": 0, "error": None, "batchRows": 0}  # fmt: skip
    server = serving(spark_queries=lambda: {"totals": query})
    with serve_resp(log) as resp:
        server.application.redis_port = resp.figures
        return read((await fetch(server, "/metrics"))[2])


async def test_a_counter_of_a_port_that_is_not_served_has_no_samples(serving):
    """F135: a metric whose value is unknown has none."""
    found = read((await fetch(serving(), "/metrics"))[2])
    assert not [name for name, _ in found if name.startswith("penstock_resp_")]


def test_what_is_known_of_the_redis_port_is_told_once():
    for values in (RESP_COMMANDS, RESP_ENDINGS, RESP_ERRORS, ERROR_CODES):
        assert len(set(values)) == len(values) <= 100


def test_a_figure_has_the_unit_that_its_name_tells():
    """F161: of a counter too, whose name goes on behind the unit."""
    units = {"seconds": "s", "bytes": "By"}
    for metric in TABLE:
        told = {unit for word, unit in units.items() if re.search(rf"_{word}(_total)?$", metric.name)}
        assert {metric.unit} == (told or {"1"}), metric.name
    assert {metric.unit for metric in TABLE if metric.name.endswith("_total")} == {"s", "By", "1"}
