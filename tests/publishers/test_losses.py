"""A line of log for each change that is lost or ignored."""

import logging
import re
from uuid import UUID

import pytest

import flow
from publishers import remove, upsert
from publishers.losses import LINES_MAX, key_digest, log_changes
from tests.harness.inside import house_step_of
from tests.publishers.support import Probe, fill, opened, order, wait_until

SECRET = "the-key-of-ann"


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "penstock.losses")
    return lambda: [
        (one.levelname, one.getMessage()) for one in caplog.records if one.name == "penstock.losses"
    ]


def test_a_repeated_transaction_tells_of_each_change_that_is_ignored(lines):
    """F138: line present, key absent."""
    with opened() as log:
        changes = [upsert("order", SECRET, {"a": 1}), remove("item", "7")]
        first = log.commit(changes, producer=("etl", 4))
        assert lines() == []
        assert log.commit(changes, producer=("etl", 4)).duplicate
        digests = [key_digest(key, log.log_id) for key in (SECRET, b"7")]
        told = lines()
    assert [level for level, _ in told] == ["INFO", "INFO"]
    for (_, line), kind, digest in zip(told, ("order", "item"), digests, strict=True):
        assert line.endswith(f"sequence 4 before, as version {first.version}: {kind}, key #{digest}")
        assert SECRET not in line


def test_one_that_comes_too_late_is_told_too(lines):
    """F138."""
    with opened() as log:
        log.commit([order(1)], producer=("etl", 4))
        assert log.commit([order(2)], producer=("etl", 3)).version == 0
    ((_, line),) = lines()
    assert "sequence 3 before, or a later one: order, key #" in line


@pytest.mark.parametrize("compress", [False, True])
def test_a_large_transaction_gets_so_many_lines_and_one_that_counts_the_rest(lines, compress):
    """F138: of many types and in several frames as well."""
    with opened(frame_bytes=4096, compress=compress) as log:
        changes = [order(n, kind) for n in range(200) for kind in ("order", "item")]
        for _ in range(2):
            log.commit(changes, producer=("etl", 1))
    told = lines()
    assert len(told) == LINES_MAX + 1
    assert told[-1][1].endswith(f": {400 - LINES_MAX} more changes")
    assert {line.split(": ")[1].split(",")[0] for _, line in told[:-1]} == {"order", "item"}


def test_what_was_spooled_is_counted(lines):
    """F138: its keys are not read again."""
    with opened(spool_bytes=4096, frame_bytes=1024) as log:
        for _ in range(2):
            log.commit([order(n) for n in range(500)], producer=("etl", 1))
    ((_, line),) = lines()
    assert line.endswith(": 500 more changes")


def test_nothing_is_read_for_lines_that_nobody_wants(caplog):
    caplog.set_level(logging.WARNING, "penstock.losses")
    log_changes(logging.INFO, "why", UUID(int=1), 1, lambda: pytest.fail("read"))


def test_a_change_of_all_keys_has_no_digest(lines):
    log_changes(logging.WARNING, "why", UUID(int=1), 1, lambda: [(None, None)])
    assert lines() == [("WARNING", "why: change, key #-")]


def test_a_digest_is_one_of_its_log():
    """F138: who reads the lines of one log cannot look keys up that it knows of another one."""
    one, other = UUID(int=1), UUID(int=2)
    assert key_digest("k", one) == key_digest(b"k", one) != key_digest("k", other)
    assert key_digest("\udc80", one) != key_digest("k", one)
    assert len(key_digest("k", one)) == 16


@pytest.mark.parametrize("on_gap", ["fail", "jump"])
def test_a_subscription_that_retention_has_passed_is_told_with_what_it_lost(lines, on_gap):
    """F138: also one that goes on behind the gap."""

    class Jumping(Probe):
        def on_gap(self, gap):
            self.states.append("gap")

    with opened(segment_bytes=65_536, retain_bytes=65_536, ring_events=1) as log:
        probe = Jumping(first=1)
        log.changes(on_gap=on_gap).subscribe(probe, executor=flow.INLINE, name="slow")
        fill(log, 1)
        while log.oldest.version < 5:
            log.commit([upsert("order", "1", {"x": "y" * 20_000})])
            house_step_of(log)()
        probe.request(10_000)
        wait_until(lambda: probe.error is not None or "gap" in probe.states)
    told = lines()
    assert [level for level, _ in told] == ["WARNING"] * len(told)
    assert re.match(r"subscription slow of log lost versions \d+ to \d+, which retention deleted", told[0][1])
