"""A disk whose operations take time, while the others run; and the clock of a run."""

import copy
from pathlib import PurePath

from tests.interleaving.primitives import monotonic, step
from tests.simulation.filesystem import SimulatedFileSystem

__all__ = ["Disk", "Time"]


class Disk(SimulatedFileSystem):
    """Each write and each sync is a step."""

    def operation(self, what: str, path: PurePath, *details: int) -> str | None:
        step(f"{what} {path.name}")
        return super().operation(what, path, *details)

    def after_power_cut(self) -> "Disk":
        """What a machine finds that loses its power now; this one goes on."""
        other = copy.deepcopy(self)
        other.power_cut()
        return other


class Time:
    """A clock that tells the time of the run."""

    def monotonic(self) -> float:
        return monotonic()

    def now_us(self) -> int:
        return int(monotonic() * 1e6)
