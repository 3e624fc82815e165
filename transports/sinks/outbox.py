"""What was read for a target and is not confirmed yet."""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from publishers.errors import InvalidOption
from publishers.model.change import Change
from transports.sinks.errors import TargetRefused, TargetUnavailable, TooLargeForTarget, shown_error
from transports.sinks.notes import HeldTypes
from transports.sinks.options import SinkOptions
from transports.sinks.sink import ItemResult, ItemVerdict, Sink, SinkBatch, SinkContext
from transports.sinks.state import SinkCounters
from transports.sinks.supply import SinkSupply

__all__ = ["SinkOutbox"]

_LOG: Final = logging.getLogger("penstock.sinks")
_BEHIND: Final = "the target has not taken changes, and refused none before them"


class SinkOutbox:
    """One batch, or the parts that it was split into.

    Args:
        sink: The sink.
        options: The options, with the transform and the reaction to refused changes.
        context: The context of the sink.
        counters: The counters to update.
        held: The entity types that the target holds.
    """

    def __init__(
        self,
        sink: Sink,
        options: SinkOptions,
        context: SinkContext,
        counters: SinkCounters,
        held: HeldTypes,
    ) -> None:
        self._sink, self._options, self._held = sink, options, held
        self._context, self._counters = context, counters
        self._batches: deque[SinkBatch] = deque()
        self._lanes = options.lanes_of(sink)
        self.read: SinkBatch | None = None

    @property
    def ready(self) -> bool:
        """Whether a batch is ready to be sent."""
        return bool(self._batches)

    @property
    def empty(self) -> bool:
        """Whether nothing is waiting."""
        return not self._batches and self.read is None

    @property
    def attempt(self) -> int:
        """The attempt number of the next batch."""
        return self._batches[0].attempt

    def forget(self) -> None:
        """Drops everything that is waiting."""
        self._batches.clear()
        self.read = None

    def renew(self) -> None:
        """Counts the attempts from 1 again."""
        self._batches = deque(replace(batch, attempt=1) for batch in self._batches)

    def close(self) -> None:
        """Ends the threads of the lanes."""
        if self._lanes is not None:
            self._lanes.close()

    def take(self, batch: SinkBatch) -> SinkBatch | None:
        """Transforms a batch and queues it; until that succeeds, the batch is kept in ``read``.

        Returns:
            The batch if the transform leaves nothing of it to send; else None.

        Raises:
            TargetRefused: If the transform fails for a change, or the target cannot hold its entity type beside another one, and the
                options do not allow to leave it out.
        """
        self.read = batch
        kept, refused = self._checked(batch)
        for change, why in refused:
            if self._options.on_reject == "pause":
                raise TargetRefused(f"{change!r}: {why}")
            self._reject(change, why)
        self._held.note()
        self.read = None
        if not kept:
            return batch
        self._batches.append(replace(batch, changes=tuple(kept)))
        return None

    def send(self, supply: SinkSupply) -> SinkBatch | None:
        """Sends the first batch.

        Returns:
            The batch, if the target has accepted all of it; None if a part of it is to be sent at once.

        Raises:
            TargetUnavailable, OSError: If all or some of it must be sent again.
            TargetRefused: If all or some of it is refused.
            Exception: Any other error of the sink.
        """
        batch = self._batches[0]
        left: dict[int, Exception | None] = {}
        results: Sequence[ItemResult]
        try:
            if self._lanes is None:
                results = self._sink.write(batch) or ()
            else:
                results, left = self._lanes.write(batch)
        except TooLargeForTarget as error:
            if len(batch) > 1:
                self._batches.popleft()
                self._batches.extendleft(reversed(batch.halves()))
                return None
            results = (ItemResult(0, ItemVerdict.REJECT, error.why),)
        except (TargetUnavailable, OSError) as error:
            self._batches[0] = batch.again()
            _ease(supply, error)
            raise
        worst = _worst(left.values())
        if worst is not None:
            _ease(supply, worst)
        elif not left:
            supply.room = min(supply.room + max(supply.room // 10, 1), self._options.room)
        if not self._judge(batch, results, left):
            return None
        self._batches.popleft()
        return batch

    def _judge(
        self, batch: SinkBatch, results: Sequence[ItemResult], left: dict[int, Exception | None]
    ) -> bool:
        """Leaves out refused changes; returns whether nothing of the batch is left to send."""
        refused = {one.place: one.error for one in results if one.verdict is ItemVerdict.REJECT}
        later = {one.place: one.error for one in results if one.verdict is ItemVerdict.RETRY}
        left = left | {one.place: None for one in results if one.verdict is ItemVerdict.BEHIND}
        taken = len(batch) - len({*refused, *later, *left})
        self._counters.changes += taken
        self._counters.batches += taken > 0
        if refused and self._options.on_reject == "pause":
            self._batches[0] = batch.only({*refused, *later, *left})
            self._counters.rejected += len(refused)
            raise TargetRefused(_first_error(batch, refused))
        for place, error in sorted(refused.items()):
            self._reject(batch.changes[place], error)
        if not (later or left):
            return True
        rest, worst = batch.only({*later, *left}), _worst(left.values())
        if refused and not later and worst is None:
            self._batches[0] = rest  # nothing has failed: what was behind a change that is left out follows
            return False
        self._batches[0] = rest.again()
        raise worst or TargetUnavailable(_first_error(batch, later) if later else _BEHIND)

    def _checked(self, batch: SinkBatch) -> tuple[Sequence[Change], Sequence[tuple[Change, str]]]:
        """Returns the changes to send, transformed, and those that cannot be sent."""
        transform = self._options.transform
        if transform is None and self._held.takes_all:
            return batch.changes, ()
        kept: list[Change] = []
        refused: list[tuple[Change, str]] = []
        for change in batch.changes:
            try:
                made = change
                if transform is not None:
                    told = transform(change)
                    if told is None:
                        continue
                    made = _at_its_place(change, told)
            except KeyboardInterrupt:  # of the caller who steps the sink
                raise
            except BaseException as error:  # noqa: BLE001 - the user's function: a change that it fails for is refused
                refused.append((change, f"the transform failed: {shown_error(error)}"))
                continue
            flaw = self._held.flaw(made)
            if flaw is None:
                kept.append(made)
            else:
                refused.append((made, flaw))
        return kept, refused

    def _reject(self, change: Change, error: str) -> None:
        letters = self._options.dead_letters
        if letters is not None:
            letters.keep(self._context, change, error)
            self._counters.dead_letters += 1
        self._counters.rejected += 1
        self._counters.dropped += 1
        _LOG.warning("sink %s leaves out %r: %s", self._context.name, change, error)


def _ease(supply: SinkSupply, error: Exception) -> None:
    """Halves the next batches for an overloaded target."""
    if isinstance(error, TargetUnavailable) and error.overloaded:
        supply.room = max(supply.room // 2, 1)


def _worst(errors: Iterable[Exception | None]) -> Exception | None:
    """Of the errors of several lanes, returns a permanent one, or else the one that asks for the longest wait; None without one."""

    def weight(error: Exception) -> tuple[bool, float, bool]:
        later = isinstance(error, TargetUnavailable | OSError)
        return not later, getattr(error, "retry_after", None) or 0.0, getattr(error, "overloaded", False)

    return max((one for one in errors if one is not None), key=weight, default=None)


def _first_error(batch: SinkBatch, errors: dict[int, str]) -> str:
    """The first of the errors of single changes, and how many there are."""
    place = min(errors)
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{batch.changes[place]!r}: {errors[place]}{more}"


def _at_its_place(change: Change, made: object) -> Change:
    if isinstance(made, Change):
        same = (made.version, made.index, made.count) == (change.version, change.index, change.count)
        if same:
            return made
    raise InvalidOption("transform", made, f"a change at {change.position}, or None")
