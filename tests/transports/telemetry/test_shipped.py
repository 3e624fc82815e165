"""The alert rules and the dashboard that the guide ships."""

import json
import re
from pathlib import Path

from transports.telemetry.table import TABLE, MetricKind

FOLDER = Path(__file__).parents[3] / "docs" / "monitoring"
NAME = re.compile(r"\bpenstock_[a-z_]+\b")


def known():
    """Every name that Prometheus has of us."""
    found = set()
    for one in TABLE:
        parts = ("_bucket", "_count", "_sum") if one.kind is MetricKind.HISTOGRAM else ("",)
        found |= {one.name + part for part in parts}
    return found


def test_rules_name_metrics_that_there_are():
    """F161."""
    text = (FOLDER / "rules.yml").read_text()
    expressions = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert:") > 10
    used = {name for one in expressions for name in NAME.findall(one)}
    assert used <= known()
    assert text.count("severity: ") == len(expressions) == text.count("summary: ")


def test_the_dashboard_names_metrics_and_labels_that_there_are():
    """F161."""
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    targets = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    queries = [one["expr"] for one in targets] + [
        one["definition"] for one in dashboard["templating"]["list"] if "definition" in one
    ]
    used = {name for one in queries for name in NAME.findall(one)}
    assert len(used) > 30
    assert used <= known()
    labels = {"instance", "job", "le"} | {label for one in TABLE for label in one.all_labels}
    shown = {name for one in targets for name in re.findall(r"{{(\w+)}}", one["legendFormat"])}
    asked = {name for one in queries for name in re.findall(r'(\w+)(?:=~|=)"', one)}
    assert shown | asked <= labels


def test_the_dashboard_shows_each_figure_of_sparks_queries_and_the_state_that_is_alerted_on():
    """F152, F161."""
    dashboard = (FOLDER / "grafana.json").read_text()
    told = {one.name for one in TABLE if one.name.startswith("penstock_spark_query_")}
    assert len(told) == 7
    assert told <= set(NAME.findall(dashboard))
    assert 'state=\\"FAILED\\"' in dashboard


def test_panels_of_the_dashboard_do_not_lie_on_each_other():
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    taken = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_every_alert_is_in_the_guide():
    """F161: what to alert on, and why."""
    guide = (FOLDER.parent / "monitoring.md").read_text()
    alerts = re.findall(r"- alert: (\w+)", (FOLDER / "rules.yml").read_text())
    assert [name for name in alerts if f"`{name}`" not in guide] == []


def test_every_alert_has_a_case_in_which_it_is_silent_and_then_fires_for_the_first_time():
    """F161: ``promtool`` runs the cases, with `make servers`; counters begin at 0 in them, as they do here."""
    cases = (FOLDER.parents[1] / "tests" / "servers" / "rules_test.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", (FOLDER / "rules.yml").read_text())
    pattern = r"{eval_time: (\d+)m, alertname: (\w+), exp_alerts: \[\]}\n +- eval_time: (\d+)m\n +alertname: \2\n +exp_alerts:\n +- exp_labels"
    found = re.findall(pattern, cases)
    assert [name for _, name, _ in found] == alerts
    assert all(int(quiet) < int(loud) for quiet, _, loud in found)
    counters = {one.name for one in TABLE if one.kind is MetricKind.COUNTER}
    series = re.findall(r"series: '(\w+){.*?', values: '(\S+)", cases)
    assert [(name, first) for name, first in series if name in counters and not first.startswith("0")] == []
