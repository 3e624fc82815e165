"""The CPU time of all processes of a measurement."""

import os
from pathlib import Path

__all__ = ["cpu_seconds"]


def cpu_seconds() -> float:
    """CPU seconds of this process and of all its descendants."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(entry.name)
        parents.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(
            map(int, fields[11:15])
        )  # in user mode, in the kernel, and both of children that ended
    found, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        found += used.get(pid, 0)
        waiting += parents.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")
