"""A real Prometheus: it checks the rules, scrapes a real server, and answers queries."""

import contextlib
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from publishers import ChangeLog, upsert
from tests.harness.missing import skip_without
from tests.harness.ports import free_port
from tests.publishers.support import wait_until

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1] / "docs" / "monitoring"
RULES = (SHIPPED / "rules.yml").read_text().count("- alert: ")
if shutil.which("prometheus") is None or shutil.which("promtool") is None:
    skip_without("prometheus and promtool (make servers installs them)")


def promtool(*arguments):
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(url):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as answer:
        return answer.read().decode()


def test_promtool_takes_the_rules_and_the_configuration():
    """F161."""
    assert f"SUCCESS: {RULES} rules found" in promtool("check", "rules", SHIPPED / "rules.yml")
    promtool("check", "config", SHIPPED / "prometheus.yml")


def test_alerts_fire_when_they_should_and_not_when_they_should_not():
    """F161."""
    assert "SUCCESS" in promtool("test", "rules", HERE / "rules_test.yml")


def test_promtool_finds_nothing_wrong_with_the_metrics(start, tmp_path):
    """F135, F161: names, units and help as Prometheus wants them."""
    with ChangeLog.open(tmp_path / "shop") as log:
        log.commit([upsert("order", "1", {})])
    with start("serve", tmp_path / "shop", "--own", "--port", "0") as process:
        url = process.stdout.readline().split()[-1].removesuffix("/health")
        text = ask(f"{url}/metrics")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line]
    assert complaints == [], complaints


@contextlib.contextmanager
def prometheus(folder, target, port):
    (folder / "rules.yml").write_text((SHIPPED / "rules.yml").read_text())
    text = (SHIPPED / "prometheus.yml").read_text()
    assert "127.0.0.1:8090" in text
    (folder / "prometheus.yml").write_text(text.replace("127.0.0.1:8090", target).replace("15s", "1s"))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def query(url, expression):
    """The value of each series."""
    told = json.loads(ask(f"{url}/api/v1/query?query={urllib.parse.quote(expression)}"))
    assert told["status"] == "success"
    return {
        tuple(sorted((k, v) for k, v in one["metric"].items() if k in ("log", "share", "protocol"))): float(
            one["value"][1]
        )
        for one in told["data"]["result"]
    }


@pytest.mark.timeout(120)
def test_a_real_prometheus_scrapes_a_real_server_and_answers(start, tmp_path):
    """F135, F161: counts, lag, connections and latencies of what a client did; the rules run, and none fires."""
    with ChangeLog.open(tmp_path / "shop") as log:
        log.commit([upsert("order", "1", {})])
    with start("serve", tmp_path / "shop", "--own", "--port", "0") as process:
        url = process.stdout.readline().split()[-1].removesuffix("/health")
        target = url.removeprefix("http://")
        with (
            prometheus(tmp_path, target, free_port()) as asked,
            start("tail", f"ws://{target}/ws", "--since", "earliest") as tail,
        ):
            assert len([tail.stdout.readline() for _ in range(2)]) == 2

            def answered():
                with contextlib.suppress(OSError):
                    return query(asked, "penstock_log_delivered_total > 0")
                return {}

            wait_until(answered, timeout=60)
            shop = (("log", "shop"),)
            assert query(asked, 'up{job="penstock"}') == {(): 1.0}
            assert query(asked, "penstock_log_visible_version") == {shop: 1.0}
            assert query(asked, "penstock_connections") == {(("protocol", "penstock.v1+json"),): 1.0}
            assert query(asked, 'penstock_log_lag_events{share="1"}') == {(*shop, ("share", "1")): 0.0}
            assert query(asked, "penstock_log_sound") == {shop: 1.0}
            assert len(query(asked, "penstock_log_expiry_bytes")) == 1
            told = json.loads(ask(f"{asked}/api/v1/rules"))["data"]["groups"]
            rules = [rule for group in told for rule in group["rules"]]
            assert len(rules) == RULES
            wait_until(lambda: all(rule["health"] == "ok" for rule in rules_of(asked)), timeout=60)
            assert json.loads(ask(f"{asked}/api/v1/alerts"))["data"]["alerts"] == []


def rules_of(asked):
    groups = json.loads(ask(f"{asked}/api/v1/rules"))["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
