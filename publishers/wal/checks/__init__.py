"""Maintenance of a log.

* `verify` examines every byte, and makes a `Report`.
* `dump` prints frames, also from damaged files.
* `repair` truncates a log at the first damage, and keeps the removed data.
"""

from publishers.wal.checks.dump import Dumped, DumpGap, dump
from publishers.wal.checks.plan import Repair, RepairStep
from publishers.wal.checks.repair import repair
from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.checks.verify import Progress, verify

__all__ = [
    "DumpGap",
    "Dumped",
    "Finding",
    "Progress",
    "Repair",
    "RepairStep",
    "Report",
    "Verdict",
    "dump",
    "repair",
    "verify",
]
