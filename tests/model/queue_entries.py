"""What enters a commit queue: the plan of a life, its entries, and the steps of its threads."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from publishers.commits.pending import CommitStage

if TYPE_CHECKING:
    from tests.model.queue_world import QueueWorld

__all__ = ["Entry", "Procedure", "QueuePlan", "Refused", "Step", "Wrong"]

_COMMIT: Final = 4
_TASK: Final = 11


class Wrong(AssertionError):
    """Something that must never be."""


class Refused(Exception):
    """A commit that gets an error; its text says which."""


class Step(NamedTuple):
    """The next thing that a thread does.

    Attributes:
        name: What it is.
        ready: Whether the thread can go on.
        faults: What may happen instead, while the plan has some left.
    """

    name: str
    ready: Callable[[], bool] = lambda: True
    faults: tuple[str, ...] = ()


Procedure = Generator[Step, str, Any]


@dataclass(frozen=True)
class QueuePlan:
    """What enters a queue.

    Attributes:
        threads: A word a thread. ``c`` commits, ``h`` withholds, ``e`` expects that nothing was committed, each twice if the
            letter stands twice; ``s`` submits, and ``p`` submits behind the one before it; ``q`` syncs; ``t`` publishes, ``f``
            forgets what is withheld, ``r`` rolls; ``z`` closes.
        interrupts: How many interrupts there may be, wherever a thread can meet one.
        fulls: How often the disk may be full.
        failures: How often the disk may fail.
        room: Bytes of the queue; a commit has 4.
        prompt: Threads that are waited for at first.
        interval: Whether commits are synced by ``q`` only.
    """

    threads: tuple[str, ...]
    interrupts: int = 0
    fulls: int = 0
    failures: int = 0
    room: int = 100
    prompt: int = 16
    interval: bool = False

    def __str__(self) -> str:
        changed = [f"{name}{value}" for name, value in list(vars(self).items())[1:] if value is not _OF[name]]
        return "-".join((*self.threads, *changed))


_OF: Final = {
    name: getattr(QueuePlan, name) for name in QueuePlan.__dataclass_fields__ if hasattr(QueuePlan, name)
}


class Entry:
    """What a queue sees of a `Pending`, and what became of it."""

    def __init__(
        self, world: "QueueWorld", number: int, kind: str, after: "Entry | None", head: int = 0
    ) -> None:
        self.world, self.number, self.kind, self.after = world, number, kind, after
        self.task = kind if kind in "tfr" else None
        self.transaction = None if kind in "tfrqz" else self
        self.size = 0 if kind in "qz" else _TASK if self.task else _COMMIT
        self.hidden = kind == "h"
        self.submitted = kind in "sp"
        self.expects = head if kind == "e" else None
        self.head, self.late, self.ran = head, False, False
        self.stage, self.asleep, self.roused = CommitStage.OUTSIDE, False, False
        self.version: int | None = None
        self.error: str | None = None
        self.groups, self.forgotten = 0, False
        self.answers: list[str] = []

    def __repr__(self) -> str:
        return f"{self.kind}{self.number}"

    @property
    def done(self) -> bool:
        return self.stage is CommitStage.DONE

    def rouse(self) -> None:
        self.roused = True

    def appoint(self) -> None:
        if self.world.queue.leader is not self:
            raise Wrong(f"{self} is woken to lead, and does not lead yet")  # it looks without the lock
        if self.submitted:
            self.world.arrivals.append(self)
        else:
            self.rouse()

    def refuse(self, error: str) -> None:
        self.version, self.error = None, error

    def finish(self) -> None:
        self.stage = CommitStage.DONE
        if not self.submitted:
            self.rouse()
        elif self.error is not None or self.version is None:
            self.world.answer(self, self.error or "unknown")
        else:
            self.world.settle()

    def key(self) -> tuple[Any, ...]:
        return (
            self.stage.name,
            self.asleep,
            self.roused,
            self.version,
            self.error,
            self.late,
            self.ran,
            *self.answers,
        )
