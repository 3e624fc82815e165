"""The options of a group: every bound has a name, a default and a check."""

from random import Random
from typing import Annotated, Any, Final, Literal

import msgspec

from publishers.errors import InvalidOption
from publishers.options import check_options

__all__ = ["GroupAck", "GroupGap", "GroupOrdering", "GroupSettings"]

GroupOrdering = Literal["key", "none", "global"]
"""Which changes wait for earlier ones: for those of the same key, for none, or for all."""

GroupAck = Literal["explicit", "all", "transaction", "none"]
"""What an acknowledgement covers: one change, all changes up to it, a transaction; or that none is needed."""

GroupGap = Literal["error", "earliest", "latest"]
"""What happens if retention deleted changes that were not done: the group stops, or continues behind the gap or at the log's end."""

_MOST_DELAYS: Final = 100
_JITTER: Final = 0.2
_LONGEST: Final = 86_400.0 * 365


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a group delivers; fixed when it is created. Times in seconds, sizes in bytes.

    Attributes:
        ordering: ``"key"``: changes of one key in order, and the unacknowledged ones of a key at one consumer only; ``"none"``: in
            any order; ``"global"``: one change in flight, in log order.
        ack: ``"explicit"``: one delivery for each acknowledgement; ``"all"``: an acknowledgement covers every delivery of the
            consumer up to there; ``"transaction"``: a delivery is a whole transaction; ``"none"``: acknowledged when delivered.
        ack_wait: Time after which a delivery that was not acknowledged is due again, for every consumer.
        max_ack_pending: Most changes delivered and not acknowledged, those due for redelivery included; at the bound ``read``
            returns no new changes.
        max_consumer_pending: Most deliveries of one consumer that are not acknowledged.
        max_parked: Most changes read ahead that wait, such as for earlier ones of their key.
        max_deliver: Most deliveries of a change before it becomes a dead letter; None for no limit.
        backoff: Delays after the first, second ... delivery that was refused without a delay, or that timed out again; the last one
            repeats. Each delay is varied by up to a fifth.
        batch: Most deliveries of one ``read``.
        max_bytes: Most bytes of the changes of one ``read``, which returns at least one change.
        max_wait: Longest time for which ``read`` waits for the first delivery.
        on_gap: What happens if retention deleted changes that were not done.
        consumer_ttl: Time without a call after which a consumer is removed.
        max_consumers: Most consumers.
        breaker: Whether the group pauses, instead of writing dead letters, if more than half of its last 100 deliveries failed.
        keep_bytes: Most bytes of the log kept for the group; None for the option ``slot_keep_bytes`` of the log.
        keep_age: Longest time for which a closed segment is kept for the group; None for ``slot_keep_age``.
    """

    ordering: GroupOrdering = "key"
    ack: GroupAck = "explicit"
    ack_wait: Annotated[float, 0.001, 86_400.0 * 365] = 30.0
    max_ack_pending: Annotated[int, 1, 1_000_000] = 1_000
    max_consumer_pending: Annotated[int, 1, 1_000_000] = 200
    max_parked: Annotated[int, 1, 1_000_000] = 10_000
    max_deliver: Annotated[int | None, 1, 1_000_000] = None
    backoff: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0, 600.0)
    batch: Annotated[int, 1, 1_000_000] = 100
    max_bytes: Annotated[int, 1, 2**40] = 1024 * 1024
    max_wait: Annotated[float, 0.0, 3_600.0] = 5.0
    on_gap: GroupGap = "error"
    consumer_ttl: Annotated[float, 0.001, 86_400.0 * 365] = 3_600.0
    max_consumers: Annotated[int, 1, 100_000] = 1_000
    breaker: bool = True
    keep_bytes: Annotated[int | None, 0, 2**62] = None
    keep_age: Annotated[float | None, 0.0, 2**40] = None

    @classmethod
    def chosen(cls, options: dict[str, Any]) -> "GroupSettings":
        """Builds settings from some options; the others have their defaults.

        Raises:
            InvalidOption: If an option is unknown or out of its bounds.
        """
        known = cls.__struct_fields__
        for name, value in options.items():
            if name not in known:
                raise InvalidOption(name, value, "one of " + ", ".join(known))
        backoff = options.get("backoff")
        if isinstance(backoff, list):
            options = {**options, "backoff": tuple(backoff)}
        found = cls(**options)
        found.check()
        return found

    def check(self) -> None:
        """Checks all options.

        Raises:
            InvalidOption: If an option is out of its bounds.
        """
        check_options(self)
        if not isinstance(self.backoff, tuple) or not 1 <= len(self.backoff) <= _MOST_DELAYS:
            raise InvalidOption("backoff", self.backoff, f"1 to {_MOST_DELAYS} delays in seconds")
        for delay in self.backoff:
            if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= _LONGEST:
                raise InvalidOption("backoff", delay, f"delays in seconds from 0 to {_LONGEST:.0f}")

    def delay_after(self, count: int, chance: Random) -> float:
        """The delay in seconds after ``count`` deliveries, varied by up to a fifth."""
        delay = self.backoff[min(max(count, 1), len(self.backoff)) - 1]
        return delay * chance.uniform(1 - _JITTER, 1 + _JITTER)
