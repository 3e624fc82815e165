"""Logs for backups, and what their directories hold."""

import os

import pytest

from penstock_cdc.errors import BackupRefused
from publishers import ChangeLog, upsert
from tests.publishers.support import wait_until

OPTIONS = {
    "sync": "os",
    "segment_bytes": 65_536,
    "fill_step": 65_536,
    "retain_bytes": None,
    "retain_age": None,
}
FILL = "x" * 3000


def grow(log, versions):
    """Commits that take a segment each twenty."""
    for _ in range(versions):
        log.commit([upsert("order", str(log.head.version), {"fill": FILL})])


def keys(path):
    """What there is, by a look that writes nothing."""
    with ChangeLog.open(path, read_only=True) as log:
        return [change.key for change in log.history(limit=1_000_000).changes if change.index]


def prune(log):
    """Commits until retention has deleted something more."""
    first = log.oldest
    while log.oldest == first:
        grow(log, 5)
        wait_until(lambda: len(segments(log.path)) <= 8)


def files(path):
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


def segments(path):
    return sorted(path.glob("wal-*.log"))


def shared(path, other):
    """Segments that are one file in both directories."""
    return [
        one.name
        for one in segments(path)
        if (other / one.name).exists() and os.path.samefile(one, other / one.name)
    ]


def refused(act, path, *words):
    """It is refused by name, says what to do, and has changed nothing."""
    before = files(path)
    with pytest.raises(BackupRefused) as caught:
        act()
    for word in (*words, str(path)):
        assert word in str(caught.value)
    assert caught.value.choice in str(caught.value)
    assert files(path) == before
