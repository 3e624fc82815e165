"""Checks that each subscriber received exactly the changes that match its criteria, in order, once."""

from dataclasses import dataclass
from typing import Any

from penstock_flights.digest import StreamDigest
from penstock_flights.plan import Wanted
from penstock_flights.reception import ReceptionPlace

__all__ = ["VerdictLine", "judge"]


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """The result of one subscriber.

    Attributes:
        wanted: The subscriber.
        place: Its final position and counts.
        expected: The digest that Spark computed from the source.
        must_lag: Whether the ring had to overtake it, and it had to catch up, at least once.
    """

    wanted: Wanted
    place: ReceptionPlace
    expected: StreamDigest
    must_lag: bool = False

    @property
    def complete(self) -> bool:
        """Whether the number of changes is right."""
        return self.place.count == self.expected.count

    @property
    def ordered(self) -> bool:
        """Whether the positions rose, and the numbers of the changes agree with Spark's."""
        return not self.place.misplaced and self.place.ordered == self.expected.ordered

    @property
    def once(self) -> bool:
        """Whether no change was missing or delivered twice."""
        return self.complete and not self.place.misplaced and self.place.content == self.expected.content

    @property
    def equal(self) -> bool:
        """Whether the digests are equal."""
        return self.place.digest == self.expected

    @property
    def lagged(self) -> bool:
        """Whether it entered RESYNC and became LIVE again, if it had to."""
        return not self.must_lag or (self.place.resyncs > 0 and self.place.returns > 0)

    @property
    def holds(self) -> bool:
        """Whether all checks pass."""
        return not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        """The failed checks, a sentence each."""
        who, place, expected = self.wanted.title, self.place, self.expected
        found = []
        if not self.complete:
            found.append(
                f"{who}: {place.count:,} changes came, but Spark counts {expected.count:,} in the source"
            )
        if place.misplaced:
            found.append(f"{who}: {place.misplaced:,} changes came twice or too late")
        if self.complete and not self.equal:
            found.append(
                f"{who}: the digest is {place.digest}, but Spark computes {expected} from the source"
            )
        if not self.lagged:
            what = "was never overtaken by the ring" if not place.resyncs else "never became LIVE again"
            found.append(f"{who}: it {what}")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The result in its stored form."""
        return {
            "wants": self.wanted.wants,
            "received": self.place.count,
            "digest": str(self.place.digest),
            "expected": str(self.expected),
            "resyncs": self.place.resyncs,
            "differences": list(self.differences),
        }


def judge(
    subscribers: tuple[Wanted, ...],
    places: dict[str, ReceptionPlace],
    expected: dict[str, StreamDigest],
    *,
    overtakes: bool,
) -> tuple[VerdictLine, ...]:
    """Compares the results of the subscribers with Spark's digests.

    Args:
        subscribers: All subscribers.
        places: Their final positions and counts, by name.
        expected: Spark's digests, by name.
        overtakes: Whether the run was long enough for the ring to overtake slow subscribers.
    """
    return tuple(
        VerdictLine(one, places[one.name], expected[one.name], must_lag=one.slow and overtakes)
        for one in subscribers
    )
