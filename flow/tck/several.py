"""Rule 1.11 and related rules: several subscribers to one publisher."""
# ruff: noqa: N802 - the standard names

from typing import Any

from flow.contracts import Publisher
from flow.tck.settings import rs
from flow.tck.subjects import PublisherSettings
from flow.tck.witness import Witness, broken

__all__ = ["SeveralSubscribers"]


class SeveralSubscribers(PublisherSettings):
    """The tests with several subscribers."""

    @rs("1.11", "optional")
    def test_optional_spec111_maySupportMultiSubscribe(self) -> None:
        """Two subscribers, no error."""
        self.several()
        publisher = self.publisher(1)
        for witness in self._all(publisher, 2):
            witness.expect_silence("1.11", "although nothing was requested")

    @rs("1.11", "optional")
    def test_optional_spec111_registeredSubscribersMustReceiveOnNextOrOnCompleteSignals(self) -> None:
        """Each receives an element or the end."""
        self.several()
        publisher = self.publisher(1)
        witnesses = self._all(publisher, 2)
        for witness in witnesses:
            witness.request(1)
        for witness in witnesses:
            witness.expect_next_or_end("1.11")

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingOneByOne(
        self,
    ) -> None:
        """Three subscribers with different patterns of requests receive equal sequences."""
        self.several(3)
        self.exact()
        one, two, three = witnesses = self._all(self.publisher(5), 3)
        if self.coordinated:
            for _ in range(5):
                for witness in witnesses:
                    witness.request(1)
                for witness in witnesses:
                    witness.expect_next("1.11")
        else:
            for witness, requests in ((one, (1, 1, 2, 1)), (two, (2, 3)), (three, (3, 1, 1))):
                for n in requests:
                    witness.request(n)
                    witness.expect_items(n, "1.11")
        for witness in witnesses:
            witness.request(1)
            witness.expect_complete("1.11")
        _equal(witnesses)

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingManyUpfront(
        self,
    ) -> None:
        """All request more than there is, and receive equal sequences."""
        self._upfront()

    @rs("1.11", "optional")
    def test_optional_spec111_multicast_mustProduceTheSameElementsInTheSameSequenceToAllOfItsSubscribersWhenRequestingManyUpfrontAndCompleteAsExpected(
        self,
    ) -> None:
        """And all receive the end."""
        for witness in self._upfront():
            witness.expect_complete("1.11")
            witness.expect_silence("1.7", "after on_complete")

    @rs("1.10", "extra")
    def test_extra_spec110_laterSubscribersAreServedOrToldTheEnd(self) -> None:
        """After the first has received everything, a cold publisher delivers everything again, a hot one signals its end."""
        self.several()
        self.exact()
        publisher = self.publisher(3)
        first = self.subscribed(publisher)
        first.request(4)
        first.expect_items(3)
        first.expect_complete()
        second = self.subscribed(publisher)
        if self.multicast == "cold":
            second.request(4)
            second.expect_items(3, "1.10")
            _equal([first, second])
        second.expect_complete("1.10")

    @rs("1.11", "extra")
    def test_extra_spec111_slowSubscriberHoldsNobodyElseBack(self) -> None:
        """Beside a subscriber without demand, another one receives everything that it has requested."""
        self.several()
        self.exact()
        if self.coordinated:
            return
        publisher = self.publisher(3)
        slow, quick = self._all(publisher, 2)
        quick.request(4)
        quick.expect_all(3, "1.11")
        slow.request(4)
        slow.expect_all(3, "1.11")
        _equal([slow, quick])

    @rs("1.11", "extra")
    def test_extra_spec111_cancelInsideOnNextTakesNothingFromTheNeighbours(self) -> None:
        """One subscriber cancels inside a signal; those that subscribed after it miss nothing."""
        self.several(3)
        self.exact()
        publisher = self.publisher(3)
        before, leaver, after = witnesses = [
            self.subscribed(publisher, on_item=leaving) for leaving in (None, Witness.cancel, None)
        ]
        for witness in witnesses:
            witness.request(4)
        for witness in (before, after):
            witness.expect_all(3, "1.11")
        leaver.expect_next("1.11")
        leaver.expect_silence("1.8", "after cancel")

    def _upfront(self) -> list[Witness]:
        self.several(3)
        self.exact()
        witnesses = self._all(self.publisher(3), 3)
        for witness in witnesses:
            witness.request(4)
        for witness in witnesses:
            witness.expect_items(3, "1.11")
        _equal(witnesses)
        return witnesses

    def _all(self, publisher: Publisher[Any], count: int) -> list[Witness]:
        return [self.subscribed(publisher) for _ in range(count)]


def _equal(witnesses: list[Witness]) -> None:
    for witness in witnesses[1:]:
        if witness.items != witnesses[0].items:
            broken("1.11", f"one subscriber got {witnesses[0].items!r}, another {witness.items!r}")
