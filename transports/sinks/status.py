"""The status of a sink's runner."""

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
        batches: Batches that the target has accepted.
        changes: Changes in them.
        failures: Attempts that failed and are retried.
        given_up: Batches whose last allowed attempt has failed.
        rejected: Changes that the target refused for good.
        dropped: Of these, changes that were left out, as the options say.
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
    """The status of one sink at this moment.

    Attributes:
        name: The name of the sink.
        state: The state of its runner.
        reason: Why it is paused, off, lost, completed or stopped; else None.
        last_error: The last error, also after a success; None without one.
        last_error_age: Seconds since the last error; None without one.
        attempt: The number of the next attempt of a failed batch; 0 without one.
        retry_in: Seconds until that attempt; None without one.
        circuit_open: Whether so many attempts failed that the target must answer before the next batch is sent.
        position: The stored position, from which a restart continues; for a sink that is off or completed, its last one. None before.
        confirmed: The position behind the last change that the target has confirmed; None before the first.
        lag: How far ``position`` is behind the log; None until the slot exists.
        gap: The range left out while the sink was off, until the target has confirmed it; None without one.
        epoch: The epoch of the lease that the sink sends under; None on standby, or without a lease.
        counters: The counters of the runner.
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
