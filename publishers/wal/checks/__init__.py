"""Looking after a log: every byte of it verified, its frames printed, damage cut off without taking more than it has to."""

from publishers.wal.checks.dump import Dumped, Gap, dump
from publishers.wal.checks.plan import Repair, Step
from publishers.wal.checks.repair import repair
from publishers.wal.checks.report import Finding, Report, Verdict
from publishers.wal.checks.verify import Progress, verify

__all__ = [
    "Dumped",
    "Finding",
    "Gap",
    "Progress",
    "Repair",
    "Report",
    "Step",
    "Verdict",
    "dump",
    "repair",
    "verify",
]
