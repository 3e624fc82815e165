"""What the runner of a sink tells of itself."""

from dataclasses import dataclass, field

from publishers.fanout.state import SubscriptionLag
from publishers.model.position import Position
from transports.sinks.sink import SinkGap
from transports.sinks.state import SinkState

__all__ = ["SinkCounters", "SinkStatus"]


@dataclass(slots=True)
class SinkCounters:
    """What a runner has done since it was made.

    Attributes:
        batches: Batches that the target has taken.
        changes: Changes in them.
        failures: Attempts that failed and were, or are, repeated.
        given_up: Batches of which the last attempt that was allowed has failed.
        rejected: Changes that the target refused for good.
        dropped: Of these, changes that were left out, as the user wants it.
        dead_letters: Of these, changes that were written to the dead letters first.
    """

    batches: int = 0
    changes: int = 0
    failures: int = 0
    given_up: int = 0
    rejected: int = 0
    dropped: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """One sink at this moment.

    Attributes:
        name: What it is called.
        state: What its runner does.
        reason: Why it is paused, off, lost, completed or has stopped; None if it is not.
        last_error: What failed last, also if it works again; None if nothing did.
        last_error_age: Seconds since then; None if nothing did.
        attempt: The number of the next attempt of the batch that failed; 0 if none did.
        retry_in: Seconds until then; None if none did.
        circuit_open: Whether it failed so often in a row that the target is asked whether it answers first.
        position: The place that is stored: a restart goes on there. Of one that is off or completed, where it was. None before.
        confirmed: Behind the last change that the target has taken; None before the first.
        lag: How far ``position`` is behind the log; None until the slot is there.
        gap: What was left out while it was off, until the target has been told; None for nothing.
        epoch: Of the lease by which it sends; None where it stands by, or has none.
        counters: What was done.
    """

    name: str
    state: SinkState
    reason: str | None
    last_error: str | None
    attempt: int
    retry_in: float | None
    circuit_open: bool
    position: Position | None
    confirmed: Position | None
    lag: SubscriptionLag | None
    epoch: int | None = None
    last_error_age: float | None = None
    gap: SinkGap | None = None
    counters: SinkCounters = field(default_factory=SinkCounters)
