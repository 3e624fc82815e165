"""How a sink is run: batches, retries, what it sees, and what becomes of what its target refuses."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.model.change import Change
from publishers.model.position import Start
from publishers.options import MIB, check_whole
from publishers.views.view import Content, View
from transports.sinks.lanes import SinkLanes, SinkOrdering
from transports.sinks.rejects import DeadLetterStore, OnReject
from transports.sinks.retry import RetryPolicy, check_seconds
from transports.sinks.sink import Sink

__all__ = ["SinkOptions"]


def _check_word(parameter: str, value: object, right: tuple[str, ...]) -> None:
    if value not in right:
        raise InvalidOption(parameter, value, " or ".join(map(repr, right)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a sink is run.

    Attributes:
        criteria: Which changes; they are fixed when the slot is made. None for everything.
        start: Where a slot that is made begins, as ``since`` of ``ChangeLog.changes``.
        view: How the target sees changes; its images are those that the sink needs, if it needs some.
        batch_changes: Most changes of a batch, from 1 to 100,000. Batches are whole transactions; a larger one is split.
        batch_bytes: Most bytes of a batch, from 1; a single change may be larger.
        linger: Seconds from the first change of a batch until it is sent although it is not full, up to 60.
        retry: How a target that fails is tried again.
        on_reject: What becomes of changes that the target refuses for good. Whatever is not ``pause`` leaves gaps.
        dead_letters: Where they are kept with ``on_reject="dead_letter"``.
        transform: Given each change before it is sent: it returns the change, another one at the same position, or None to leave it
            out. It must be pure, as a change may come again.
        store_every: Seconds between two times that the place is stored, from 0.05 to 60; 0 for durably after each batch, so that
            whatever dies, one batch at most is repeated.
        take_over: Whether to take the slot from another consumer that has it open.
        in_flight: Requests that are sent at once, from 1 to 64, to a target whose sink is ``parallel``. A batch is ``in_flight`` times
            as large then, divided among them, and the next one is sent when all are answered.
        ordering: Which changes arrive in their order with several in flight: ``key``, those of one key; ``none``. With one: all, ``log``.
        on_failure: What becomes of a sink whose target refuses something for good, or has failed ``retry.attempts`` times: ``pause``,
            until it is resumed; ``restart``, from the stored place after a wait; ``stop``, and with it the process that a command runs it in.
        snapshot: ``initial`` for the rows of the state before changes where a slot is made; ``initial_only`` for these rows, and then
            nothing: the sink is COMPLETED; ``on_gap`` for rows of the present where history was lost; ``never``.
        source: Where rows come from, as ``source`` of ``ChangeLog.changes``; None for the state that the log keeps.

    Raises:
        InvalidOption: If something is out of its bounds.
    """

    criteria: Criteria | Criterion | Iterable[Criterion] | None = None
    start: Any = Start.LATEST
    view: View = field(default_factory=lambda: View(Content.BODY))
    batch_changes: int = 100
    batch_bytes: int = MIB
    linger: float = 0.2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_reject: OnReject = "pause"
    dead_letters: DeadLetterStore | None = None
    transform: Callable[[Change], Change | None] | None = None
    store_every: float = 1.0
    take_over: bool = False
    in_flight: int = 1
    ordering: SinkOrdering = "log"
    on_failure: Literal["pause", "restart", "stop"] = "pause"
    snapshot: Literal["never", "initial", "initial_only", "on_gap"] = "never"
    source: Any = None

    def __post_init__(self) -> None:
        check_whole("batch_changes", self.batch_changes, "a whole number from 1 to 100000", 1, 100_000)
        check_whole("batch_bytes", self.batch_bytes, "a number of bytes, from 1", 1)
        check_seconds("linger", self.linger, 0.0, 60.0)
        if self.store_every != 0 or isinstance(self.store_every, bool):
            check_seconds("store_every", self.store_every, 0.05, 60.0)
        check_whole("in_flight", self.in_flight, "a whole number from 1 to 64", 1, 64)
        right = ("log",) if self.in_flight == 1 else ("key", "none")
        _check_word("ordering", self.ordering, right)
        _check_word("on_failure", self.on_failure, ("pause", "restart", "stop"))
        _check_word("snapshot", self.snapshot, ("never", "initial", "initial_only", "on_gap"))
        if self.on_reject not in ("pause", "dead_letter", "drop"):
            raise InvalidOption("on_reject", self.on_reject, "'pause', 'dead_letter' or 'drop'")
        if (self.on_reject == "dead_letter") is not (self.dead_letters is not None):
            raise InvalidOption(
                "dead_letters", self.dead_letters, "given with on_reject='dead_letter', and only then"
            )

    @property
    def room(self) -> int:
        """Most changes of a batch, whatever it is divided into."""
        return self.batch_changes * self.in_flight

    def lanes_of(self, sink: Sink) -> SinkLanes | None:
        """What sends several requests at once; None where one is in flight.

        Raises:
            InvalidOption: If the sink takes one at a time.
        """
        if self.in_flight == 1:
            return None
        if not getattr(sink, "parallel", False):
            raise InvalidOption(
                "in_flight", self.in_flight, f"1 for {sink!r}, which takes one batch at a time"
            )
        return SinkLanes(sink, self.in_flight, self.ordering, self.batch_changes)

    @property
    def tick(self) -> float:
        """Seconds after which a runner looks at its place, at the latest."""
        return self.store_every or 1.0

    def view_for(self, sink: Sink) -> View:
        """How the target of a sink sees changes."""
        if sink.images is None:
            return self.view
        return View(Content.BODY, sink.images, self.view.lenses, self.view.integers, self.view.apart)
