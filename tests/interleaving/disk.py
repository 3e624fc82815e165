"""A disk whose operations take time, while the others run; and the clock of a run."""

from pathlib import PurePath

from tests.interleaving.primitives import monotonic, step
from tests.simulation.filesystem import SimulatedFileSystem

__all__ = ["Disk", "Time"]


class Disk(SimulatedFileSystem):
    """Each write and each sync is a step."""

    def operation(self, what: str, path: PurePath, *details: int) -> str | None:
        step(f"{what} {path.name}")
        return super().operation(what, path, *details)


class Time:
    """A clock that tells the time of the run."""

    def monotonic(self) -> float:
        return monotonic()

    def now_us(self) -> int:
        return int(monotonic() * 1e6)
