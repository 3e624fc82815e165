"""The options of a sink: batches, retries, view, and the reaction to refused changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from publishers.criteria.criteria import Criteria, Criterion
from publishers.criteria.entities import EntityFilter
from publishers.errors import InvalidOption
from publishers.model.change import Change
from publishers.model.position import Start
from publishers.options import MIB, check_options
from publishers.views.view import Content, View
from transports.sinks.lanes import SinkLanes, SinkOrdering
from transports.sinks.rejects import DeadLetterStore, OnReject
from transports.sinks.retry import RetryPolicy
from transports.sinks.sink import Sink

__all__ = ["SinkOptions"]


_LEAST_STORE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How a runner runs a sink.

    Attributes:
        criteria: The changes to carry; fixed when the slot is created. None for all changes.
        since: The first position of a new slot, as ``since`` of ``ChangeLog.changes``; ``start`` in a file.
        view: The view of the target; a sink that needs certain images overrides the images.
        batch_changes: The most changes of a batch, from 1 to 100,000. Batches are whole transactions; a larger one is split.
        batch_bytes: The most bytes of a batch, from 1; a single change may be larger.
        linger: Seconds from the first change of a batch until it is sent although it is not full, up to 60.
        retry: The policy of retries.
        on_reject: The reaction to changes that the target refuses for good. Anything but ``pause`` leaves gaps.
        dead_letters: The store of refused changes, for ``on_reject="dead_letter"``.
        transform: Called with each change before it is sent; returns the change, another one at the same position, or None to leave it
            out. It must be pure, because a change may be sent again.
        store_every: Seconds between stores of the position, from 0.05 to 60; 0 to store it durably after each batch, so that a crash
            repeats at most one batch.
        take_over: Whether to take the slot over from another consumer that has it open.
        in_flight: Concurrent requests, from 1 to 64, for a sink that is ``parallel``. A batch is then ``in_flight`` times as large
            and divided among them, and the next batch is sent when all are answered.
        ordering: Which changes arrive in order with several requests in flight: ``key``, those of one key; ``none``. With one: ``log``.
        on_failure: The reaction to a target that refuses a batch for good, or has failed ``retry.attempts`` times: ``pause``, until
            the sink is resumed; ``restart``, from the stored position after a wait; ``stop``, and with it the process of the command.
        snapshot: ``initial`` to send the rows of the state before changes when the slot is created; ``initial_only`` to send these rows
            only, after which the sink is COMPLETED; ``on_gap`` to send rows of the current state in place of lost history; ``never``.
        source: The source of rows, as ``source`` of ``ChangeLog.changes``; None for the state that the log keeps.

    Raises:
        InvalidOption: If an option is out of its bounds.
    """

    criteria: Criteria | Criterion | Iterable[Criterion] | None = None
    since: Any = Start.LATEST
    view: View = field(default_factory=lambda: View(Content.BODY))
    batch_changes: Annotated[int, 1, 100_000] = 100
    batch_bytes: int = MIB
    linger: Annotated[float, 0.0, 60.0] = 0.2
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_reject: OnReject = "pause"
    dead_letters: DeadLetterStore | None = None
    transform: Callable[[Change], Change | None] | None = None
    store_every: Annotated[float, 0.0, 60.0] = 1.0
    take_over: bool = False
    in_flight: Annotated[int, 1, 64] = 1
    ordering: SinkOrdering = "log"
    on_failure: Literal["pause", "restart", "stop"] = "pause"
    snapshot: Literal["never", "initial", "initial_only", "on_gap"] = "never"
    source: Any = None

    def __post_init__(self) -> None:
        check_options(self)
        if 0 < self.store_every < _LEAST_STORE:
            raise InvalidOption("store_every", self.store_every, f"0, or seconds from {_LEAST_STORE} to 60")
        right = ("log",) if self.in_flight == 1 else ("key", "none")
        if self.ordering not in right:
            raise InvalidOption("ordering", self.ordering, " or ".join(map(repr, right)))
        if (self.on_reject == "dead_letter") is not (self.dead_letters is not None):
            raise InvalidOption(
                "dead_letters", self.dead_letters, "given with on_reject='dead_letter', and only then"
            )

    @property
    def room(self) -> int:
        """The most changes of a batch over all requests in flight."""
        return self.batch_changes * self.in_flight

    def lanes_of(self, sink: Sink) -> SinkLanes | None:
        """Returns the lanes of concurrent requests; None for one request at a time.

        Raises:
            InvalidOption: If the sink is not ``parallel``.
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
        """The most seconds until a runner checks its position."""
        return self.store_every or 1.0

    def keeps_entities(self, sink: Sink) -> bool:
        """Returns whether the target of a sink keeps entities, so that it must also hear of those that leave the criteria.

        Raises:
            InvalidOption: If the sink also sends changes of which it cannot be told whether they are of such an entity.
        """
        if not getattr(sink, "keeps_entities", False):
            return False
        criteria = Criteria.of(self.criteria)
        if EntityFilter(criteria).leaves and getattr(sink, "sends_fields", False):
            right = f"without conditions on values for {sink!r} with field_changes, as a field-level change has nothing but its field"
            raise InvalidOption("criteria", criteria.to_json(), right)
        return True

    def view_for(self, sink: Sink) -> View:
        """Returns the view of the target of a sink."""
        if sink.images is None:
            return self.view
        return View(Content.BODY, sink.images, self.view.lenses, self.view.integers, self.view.apart)
