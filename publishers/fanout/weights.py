"""Which publishers commits can be matched with: what they ask of each change is counted, and has a bound.

The weight of a publisher is how many questions it has for every change, because the index cannot look them up: patterns without
a literal part, and conditions without an equality. One that is heavy, or finds no room among the others, is detached: commits
are not matched with it, and its subscriptions read from the WAL. So is one that was found to ask as much of the changes that led to
it; that one is attached again for a trial, after a pause that doubles each time.
"""

from typing import Final

from publishers.errors import TooCostly
from publishers.fanout.shared_publisher import SharedPublisher, Standing
from publishers.options import LogOptions

__all__ = ["Weights"]

_PAUSE: Final = 1024  # versions until the first trial
_LONGEST: Final = 2**20


class Weights:
    """The weights of the publishers of one log; every method is called under the registry's lock.

    Args:
        options: The bounds.

    Attributes:
        attached: Weight of the attached publishers.
        weight: Weight of all.
        detached: How many are detached.
    """

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self.attached = 0
        self.weight = 0
        self.detached = 0
        # Those that may be attached again, the one that waits longest first, and from which version on.
        self._trials: dict[SharedPublisher, int] = {}
        self._pauses: dict[SharedPublisher, int] = {}

    def check(self, weight: int) -> None:
        """Whether there may be one more publisher.

        Raises:
            TooCostly: If there is no room for its weight, even detached.
        """
        limit = self._options.match_weight
        if weight and self.weight + weight > limit:
            cheaper = "patterns that begin with literal characters, an equality among the conditions, or fewer of both"
            raise TooCostly("match_weight", weight, limit, cheaper, left=limit - self.weight)

    def enter(self, shared: SharedPublisher) -> None:
        """Counts a new publisher, which is attached if there is room; sets its standing."""
        self.weight += shared.weight
        if self._fits(shared.weight):
            self.attached += shared.weight
        else:
            self._detach(shared, 0)

    def leave(self, shared: SharedPublisher) -> None:
        """A publisher has no subscription any more."""
        self.weight -= shared.weight
        self._pauses.pop(shared, None)
        self._trials.pop(shared, None)
        if shared.standing is Standing.ATTACHED:
            self.attached -= shared.weight
        else:
            self.detached -= 1

    def too_dear(self, shared: SharedPublisher, version: int) -> None:
        """Detaches a publisher that was found to ask too much."""
        pause = self._pauses[shared] = min(2 * self._pauses.get(shared, _PAUSE // 2), _LONGEST)
        self.attached -= shared.weight
        self._detach(shared, version + pause)

    def next_trial(self, version: int) -> SharedPublisher | None:
        """Attaches one that has waited, if its time has come and there is room; costs the same however many wait."""
        if not self._trials:
            return None
        shared = next(iter(self._trials))
        due = self._trials.pop(shared)
        if due > version or not self._fits(shared.weight):
            self._trials[shared] = due
            return None
        self.detached -= 1
        self.attached += shared.weight
        shared.standing = Standing.ATTACHED
        return shared

    def _fits(self, weight: int) -> bool:
        options = self._options
        return not weight or (
            weight <= options.detach_weight and self.attached + weight <= options.attached_weight
        )

    def _detach(self, shared: SharedPublisher, due: int) -> None:
        shared.standing = Standing.DETACHED
        self.detached += 1
        if shared.weight <= self._options.detach_weight:
            self._trials[shared] = due
