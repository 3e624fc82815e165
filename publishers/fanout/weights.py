"""Bounds what matching costs a commit: which publishers are attached to the matching index, and which are detached.

The weight of a publisher is the number of its conditions that the index cannot look up, so that each is evaluated for every
change: patterns without a literal part, and conditions without an equality. A publisher that is too heavy, or finds no room
among the others, is detached: commits are not matched with it, and its subscriptions read from the WAL. A publisher whose
measured cost per change is too high is detached too. It is attached again for a trial, after a pause that doubles each time.
"""

from typing import Final

from publishers.errors import TooCostly
from publishers.fanout.shared_publisher import PublisherState, SharedPublisher
from publishers.options import LogOptions

__all__ = ["ATTACHED_WEIGHT", "DETACH_WEIGHT", "Weights"]

DETACH_WEIGHT: Final = 128
"""Questions that one publisher may ask of each change, such as patterns without a literal part and conditions without an equality: a tenth
of a millisecond. Beyond it the publisher is detached: its subscriptions read from the log, after all others."""

ATTACHED_WEIGHT: Final = 2_048
"""Questions that all attached publishers may ask of each change, about 2 ms: a publisher beyond it is detached until there is room."""

_PAUSE: Final = 1024  # versions until the first trial
_LONGEST: Final = 2**20


class Weights:
    """The weights of the publishers of one log; every method is called under the registry's lock.

    Args:
        options: The bounds.

    Attributes:
        attached: Weight of the attached publishers.
        weight: Weight of all publishers.
        detached: Number of detached publishers.
    """

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self.attached: int = 0
        self.weight: int = 0
        self.detached: int = 0
        # Detached publishers that may be attached again, and the version from which on; the longest waiting comes first.
        self._trials: dict[SharedPublisher, int] = {}
        self._pauses: dict[SharedPublisher, int] = {}

    def check(self, weight: int) -> None:
        """Checks that there is room for one more publisher.

        Raises:
            TooCostly: If its weight exceeds ``match_weight`` together with all others, attached or detached.
        """
        limit = self._options.match_weight
        if weight and self.weight + weight > limit:
            cheaper = "patterns that begin with literal characters, an equality among the conditions, or fewer of both"
            raise TooCostly("match_weight", weight, limit, cheaper, left=limit - self.weight)

    def enter(self, shared: SharedPublisher) -> None:
        """Counts a new publisher and sets its standing: attached if there is room."""
        self.weight += shared.weight
        if self._fits(shared.weight):
            self.attached += shared.weight
        else:
            self._detach(shared, 0)

    def leave(self, shared: SharedPublisher) -> None:
        """Removes a publisher, which has no subscription any more."""
        self.weight -= shared.weight
        self._pauses.pop(shared, None)
        self._trials.pop(shared, None)
        if shared.state is PublisherState.ATTACHED:
            self.attached -= shared.weight
        else:
            self.detached -= 1

    def too_dear(self, shared: SharedPublisher, version: int) -> None:
        """Detaches a publisher whose measured cost is too high, until a trial after ``version`` plus its pause."""
        pause = self._pauses[shared] = min(2 * self._pauses.get(shared, _PAUSE // 2), _LONGEST)
        self.attached -= shared.weight
        self._detach(shared, version + pause)

    def next_trial(self, version: int) -> SharedPublisher | None:
        """Attaches the publisher that has waited longest, if it is due and there is room; returns it, else None.

        It looks at one publisher a call, so that a commit pays the same however many wait.
        """
        if not self._trials:
            return None
        shared = next(iter(self._trials))
        due = self._trials.pop(shared)
        if due > version or not self._fits(shared.weight):
            self._trials[shared] = due
            return None
        self.detached -= 1
        self.attached += shared.weight
        shared.state = PublisherState.ATTACHED
        return shared

    def _fits(self, weight: int) -> bool:
        return not weight or (weight <= DETACH_WEIGHT and self.attached + weight <= ATTACHED_WEIGHT)

    def _detach(self, shared: SharedPublisher, due: int) -> None:
        shared.state = PublisherState.DETACHED
        self.detached += 1
        if shared.weight <= DETACH_WEIGHT:
            self._trials[shared] = due
