"""Memory and open files of processes that live on, sampled and judged."""

import os
import time
from dataclasses import dataclass
from statistics import median

__all__ = ["Resources", "Sample", "slope"]

PAGE = os.sysconf("SC_PAGE_SIZE")
WARM = 60.0
"""Seconds after its first sample in which a process may still grow: caches and rings fill, and the heap gets its size."""
ALLOWED_SLOPE = 2**20
"""Bytes an hour, judged where there are at least `LONG` seconds; shorter ones may grow by `ALLOWED_STEP` at most."""
LONG = 1800.0
ALLOWED_STEP = 16 * 2**20
ALLOWED_FILES = 12


@dataclass(frozen=True)
class Sample:
    """What a process held at a moment: seconds, bytes of resident memory, open files."""

    at: float
    memory: int
    files: int


class Resources:
    """Samples of processes, by name."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}

    def sample(self, name: str, pid: int) -> None:
        with open(f"/proc/{pid}/statm") as file:
            memory = int(file.read().split()[1]) * PAGE
        self.add(name, Sample(time.monotonic(), memory, len(os.listdir(f"/proc/{pid}/fd"))))

    def add(self, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, []).append(sample)

    def judge(self) -> list[str]:
        """What has grown that must not."""
        found = []
        for name, samples in self.samples.items():
            warm = _warm(samples)
            if len(warm) < 12:
                continue
            third = len(warm) // 3
            early, late = warm[:third], warm[-third:]
            memory = median(one.memory for one in late) - median(one.memory for one in early)
            files = median(one.files for one in late) - median(one.files for one in early)
            if files > ALLOWED_FILES:
                found.append(f"{name}: {files:.0f} more open files")
            if warm[-1].at - warm[0].at >= LONG and slope(warm) > ALLOWED_SLOPE:
                found.append(f"{name}: {slope(warm) / 2**20:.1f} MiB an hour")
            elif memory > ALLOWED_STEP:
                found.append(f"{name}: {memory / 2**20:.1f} MiB more")
        return found

    def lines(self) -> list[str]:
        """What there is to be said of each."""
        told = []
        for name, samples in self.samples.items():
            warm = _warm(samples) or samples
            told.append(
                f"{name}: {samples[0].memory / 2**20:.1f} to {samples[-1].memory / 2**20:.1f} MiB, "
                f"{slope(warm) / 2**20:+.1f} MiB an hour over {warm[-1].at - warm[0].at:.0f} s, "
                f"{min(one.files for one in warm)} to {max(one.files for one in warm)} open files"
            )
        return told


def _warm(samples: list[Sample]) -> list[Sample]:
    return [one for one in samples if one.at - samples[0].at >= WARM]


def slope(samples: list[Sample]) -> float:
    """Bytes an hour: the median of the slopes between samples half the time apart, which no single leap moves."""
    half = len(samples) // 2
    if half == 0:
        return 0.0
    pairs = zip(samples[: len(samples) - half], samples[half:], strict=True)
    return median((later.memory - one.memory) / (later.at - one.at) * 3600 for one, later in pairs)
