"""Tests that draw random numbers, or depend on the timing of threads: many rounds, with a printed seed."""
# ruff: noqa: N802 - named like the standard tests

import sys
import threading
from collections.abc import Callable
from typing import Any

from flow.tck.settings import rs
from flow.tck.subjects import PublisherSettings
from flow.tck.witness import Witness, broken

__all__ = ["StressTests"]

_THREADS = 8


class StressTests(PublisherSettings):
    """The ``extra_`` tests with many rounds."""

    @rs("3.3", "extra")
    def test_extra_spec303_theStackStaysFlatOverManyElements(self) -> None:
        """Up to 100,000 times ``request(1)`` from inside ``on_next``: the stack of each thread does not grow."""
        count = min(100_000, self.plenty, self.max_elements)
        self.needs(100)
        depths: dict[int, list[int]] = {}

        def more(witness: Witness) -> None:
            seen = len(witness.items)
            if seen % (count // 50) == 0:
                depths.setdefault(threading.get_ident(), []).append(_depth())
            if seen < count:
                witness.request(1)

        witness = self.subscribed(self.longest(count), on_item=more)
        witness.request(1)
        self.until(
            lambda: len(witness.items) >= count or witness.ended, "3.3", f"{count} elements did not come"
        )
        witness.cancel()
        if len(witness.items) < count and not self.lossy:
            broken("1.1", f"the stream ended after {len(witness.items)} of {count} elements")
        for seen in depths.values():
            if max(seen) - min(seen) > 20 * self.bounded_depth:
                broken("3.3", f"the stack grew from {min(seen)} to {max(seen)} frames")

    @rs("3.8", "extra")
    def test_extra_spec308_demandAddsUpWhateverTheSequenceOfRequests(self) -> None:
        """After any sequence of requests as many elements come as were requested in total."""
        self.exact()
        chance = self.random()
        for _ in range(self.rounds // 4 + 1):
            sequence = [chance.choice((1, 1, 2, 3, 7)) for _ in range(chance.randrange(1, 6))]
            inside = [chance.choice((0, 0, 0, 1, 2)) for _ in range(20)]
            total = min(sum(sequence) + sum(inside), 60)
            self.needs(total + 1)

            def more(witness: Witness, inside: list[int] = inside, total: int = total) -> None:
                place = len(witness.items) - 1
                n = inside[place] if place < len(inside) else 0
                if n and witness.requested + n <= total:
                    witness.request(n)

            witness = self.subscribed(self.publisher(total + 1), on_item=more)
            for n in sequence:
                witness.request(n)
            text = f"{sequence} was requested, then {inside} from inside on_next"
            self.until(
                lambda it=witness: len(it.items) >= it.requested,  # type: ignore[misc]  # a default binds it
                "3.8",
                f"fewer elements came than requested: {text}",
            )
            self.forget(witness)

    @rs("1.3", "extra")
    def test_extra_spec103_signalsAreSerialAlthoughManyThreadsRequest(self) -> None:
        """Eight threads request at the same time; signals do not overlap, and all requested elements come."""
        self.exact()
        for turn in range(self.rounds // 4 + 1):
            each = 5 if turn % 2 else 1
            witness = self.subscribed(self.publisher(_THREADS * each + 1))
            _together([lambda it=witness, n=each: [it.request(1) for _ in range(n)]] * _THREADS)  # type: ignore[misc]  # as above
            witness.expect_items(_THREADS * each, "1.3")
            self.forget(witness)

    @rs("3.12", "extra")
    def test_extra_spec312_cancelRacesWithRequestsFromEightThreads(self) -> None:
        """No call raises, no call hangs, signals are serial, and then there is silence.

        More elements are left than are requested in total, so the stream cannot end by itself; but a lossy one may.
        """
        chance = self.random()
        self.needs(2 * _THREADS)
        demand = min(self.plenty, self.max_elements) // _THREADS
        for _ in range(self.rounds // 4 + 1):
            many = chance.randrange(1, min(demand, 51))
            witness = self.subscribed(self.longest(demand * _THREADS))
            calls: list[Callable[[], Any]] = [lambda it=witness, n=many: it.request(n)] * _THREADS  # type: ignore[misc]  # as above
            calls.insert(chance.randrange(_THREADS + 1), witness.cancel)
            _together(calls)
            most = len(witness.items)
            witness.request(1)
            if witness.ended and not self.lossy:
                broken("1.8", "a terminal signal followed cancel")
            if most > many * _THREADS:
                broken("1.1", f"{most} elements came, {many * _THREADS} were requested")
            self.forget(witness)


def _together(calls: list[Callable[[], Any]]) -> None:
    """Run all calls at the same time, each on a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        barrier.wait()
        call()

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _depth() -> int:
    depth = 0
    frame = sys._getframe()  # noqa: SLF001 - there is no public way to walk one's own stack
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]  # ends with None
        depth += 1
    return depth
