"""Maintenance of a log: verify every byte, dump frames, and repair damage at the least possible loss."""

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
