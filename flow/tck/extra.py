"""Tests of publishers for what the standard kit leaves untested; some have many rounds, with random numbers and a printed seed, or threads."""
# ruff: noqa: N802 - named like the standard tests

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from flow import hooks
from flow.contracts import UNBOUNDED
from flow.tck.suite import ENDLESS, PublisherSettings, requesting, rs
from flow.tck.witness import Witness, broken

__all__ = ["ExtraPublisherTests"]


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


_SWIFT = 0.01
"""Seconds that ``request`` and ``cancel`` may take (rules 3.4, 3.5), in the fastest of several calls."""


class _Raising(Exception):
    pass


class ExtraPublisherTests(StressTests):
    """The ``extra_`` tests with one subscriber and a deterministic outcome."""

    @rs("1.3", "extra")
    def test_extra_spec103_nothingIsSignalledWhileOnSubscribeRuns(self) -> None:
        """With a recursion bound of 1, a request inside ``on_subscribe`` is only recorded."""
        early: list[int] = []

        def opened(witness: Witness) -> None:
            witness.request(1)
            threading.Event().wait(self.timeout / 10)
            early.append(len(witness.items))

        witness = self.subscribed(self.lasting(3), on_open=opened)
        witness.expect_next("1.3")
        if early[0] and self.bounded_depth == 1:
            broken("1.3", "on_next was called while on_subscribe ran")

    @rs("1.7", "extra")
    def test_extra_spec107_nothingFollowsOnError(self) -> None:
        """Requests after a failure have no effect."""
        witness = self.subscribed(self.failed())
        witness.expect_error("1.4")
        witness.request(3)
        witness.request(0)
        witness.cancel()
        witness.expect_silence("1.7", "after on_error")

    @rs("1.8", "extra")
    def test_extra_spec108_nothingFollowsCancelAndNoTerminalSignalEither(self) -> None:
        """A subscriber that cancels inside the last ``on_next`` does not receive the end."""
        witness = self.subscribed(
            self.publisher(2), on_item=lambda it: it.cancel() if len(it.items) == 2 else None
        )
        witness.request(2)
        if self.lossy:
            return
        witness.expect_items(2)
        witness.request(1)
        witness.request(-1)
        witness.expect_silence("1.8", "after cancel")

    @rs("1.8", "extra")
    def test_extra_spec108_cancelInsideOnSubscribeIsSilence(self) -> None:
        """Cancelled before anything was requested."""
        for count in (0, 3):
            witness = self.subscribed(self.publisher(count), on_open=Witness.cancel)
            witness.request(1)
            witness.expect_silence("1.8", "after cancel inside on_subscribe")

    @rs("1.9", "extra")
    def test_extra_spec109_subscribeReturnsNormallyForEveryKindOfStream(self) -> None:
        """Empty, short, endless and failed streams, with and without a request inside ``on_subscribe``."""
        kinds = [n for n in (0, 1, ENDLESS) if n <= self.max_elements]
        made: list[Callable[[], Any]] = [partial(self.make_publisher, n) for n in kinds]
        failed = self.make_failed_publisher()
        if failed is not None:
            made.append(lambda: failed)
        for make in made:
            for demand in (0, 2):
                witness = self.subscribed(make(), on_open=requesting(*([demand] if demand else [])))
                self.forget(witness)

    @rs("2.9", "extra")
    def test_extra_spec209_completesWithoutFurtherDemand(self) -> None:
        """If exactly all elements were requested, the end is signalled."""
        self.exact()
        if not self.completes_early:
            pytest.skip("by its setting the publisher needs one more request to complete")
        for count in (1, 3):
            witness = self.subscribed(self.publisher(count))
            witness.request(count)
            witness.expect_all(count, "2.9")
            self.forget(witness)

    @rs("2.9", "extra")
    def test_extra_spec209_anEmptyStreamCompletesWithoutAnyRequest(self) -> None:
        """Without any request, the end is signalled."""
        if not (self.completes_early and self.completes_idle):
            pytest.skip("by its setting the publisher needs a request to complete")
        self.subscribed(self.publisher(0)).expect_complete("2.9")

    @rs("2.13", "extra")
    def test_extra_spec213_subscriberThatRaisesIsCancelledAndHarmsNobody(self) -> None:
        """It receives no further signal, its error goes only to the hook, and other subscribers continue."""
        errors: list[Exception] = []
        with mock.patch.object(hooks, "on_dropped_error", lambda error, _subscriber: errors.append(error)):
            publisher = self.lasting(3)
            raiser = self.subscribed(publisher, on_item=_raise)
            others = [] if self.multicast is None else [self.subscribed(publisher)]
            raiser.request(3)
            raiser.expect_next("2.13")
            raiser.expect_silence("2.13", "after the subscriber had raised")
            for other in others:
                if self.coordinated or self.lossy:
                    continue
                other.request(3)
                other.expect_items(3, "2.13")
            if self.reports:
                self.until(lambda: errors, "2.13", "flow.hooks.on_dropped_error was not called")
                if len(errors) != 1 or not isinstance(errors[0], _Raising):
                    broken("2.13", f"reported was {errors!r}, instead of what the subscriber raised, once")

    @rs("3.4", "extra")
    def test_extra_spec304_requestDoesNotWaitForOnNext(self) -> None:
        """While ``on_next`` blocks on one thread, ``request`` returns on another, at once."""
        self._swift("3.4", "request", lambda witness: witness.request(1))

    @rs("3.5", "extra")
    def test_extra_spec305_cancelDoesNotWaitForOnNext(self) -> None:
        """While ``on_next`` blocks on one thread, ``cancel`` returns on another, at once."""
        self._swift("3.5", "cancel", Witness.cancel)

    def _swift(self, rule: str, name: str, call: Callable[[Witness], object]) -> None:
        gate = threading.Event()
        times: list[float] = []

        def measure() -> None:
            for _ in range(10):
                start = time.perf_counter()
                call(witness)
                times.append(time.perf_counter() - start)

        witness = self.subscribed(
            self.lasting(20), on_item=lambda it: gate.wait(self.patience) if len(it.items) == 1 else None
        )
        threads = [
            threading.Thread(target=run, daemon=True) for run in (partial(witness.request, 1), measure)
        ]
        try:
            threads[0].start()
            witness.expect_next(rule)
            threads[1].start()
            threads[1].join(self.patience / 2)
            if threads[1].is_alive():
                broken(rule, f"{name} waits for on_next, which runs on another thread")
        finally:
            gate.set()
        for thread in threads:
            thread.join(self.patience)
        if min(times) > _SWIFT:
            broken(rule, f"{name} took {min(times) * 1000:.1f} ms at best, {_SWIFT * 1000:g} ms are allowed")

    @rs("3.6", "extra")
    def test_extra_spec306_requestAndCancelAfterTheEndAreNops(self) -> None:
        """Illegal requests included."""
        witness = self.subscribed(self.publisher(0))
        witness.request(1)
        witness.expect_complete("1.5")
        for n in (1, 0, -1, UNBOUNDED, 2**70):
            witness.request(n)
        witness.cancel()
        witness.expect_silence("3.6", "after the end")

    @rs("3.9", "extra")
    def test_extra_spec309_whatIsNoPositiveIntegerIsToldAndNotRaised(self) -> None:
        """Values that only Python allows: booleans, floats, strings, None."""
        wrong: tuple[Any, ...] = (True, 1.5, float("nan"), "3", None, [])
        for n in wrong:
            witness = self.subscribed(self.lasting(3))
            witness.request(n)
            witness.verify()
            witness.expect_error("3.9", ValueError, TypeError)
            self.forget(witness)

    @rs("3.9", "extra")
    def test_extra_spec309_aWrongRequestEndsTheStreamAndOvertakesNothingInProgress(self) -> None:
        """Requested inside ``on_next``, the failure comes after it, and nothing after that."""
        witness = self.subscribed(self.lasting(5), on_item=lambda it: it.request(0))
        witness.request(1)
        witness.expect_next("3.9")
        witness.expect_error("3.9", ValueError)
        if witness.nested:
            broken("1.3", "on_error was called inside on_next")
        witness.request(1)
        witness.expect_silence("1.7", "after on_error")

    @rs("3.12", "extra")
    def test_extra_spec312_stopsAfterCancelAlthoughDemandIsLeft(self) -> None:
        """After a large request and a cancel at the third element, far fewer elements come than were requested."""
        demand = min(self.plenty, 1000, self.max_elements)
        self.needs(20)
        witness = self.subscribed(
            self.longest(demand), on_item=lambda it: it.cancel() if len(it.items) >= 3 else None
        )
        witness.request(demand)
        witness.expect_next("3.12")
        witness.quiet("after cancel at the third", "3.12", demand // 2)

    @rs("3.13", "extra")
    def test_extra_spec313_nothingKeepsTheSubscriberAfterAnyEnd(self) -> None:
        """After completion, after failure, and after the subscriber has raised."""
        with mock.patch.object(hooks, "on_dropped_error", _nobody):

            def complete(witness: Witness) -> None:
                witness.request(1)
                witness.expect_complete("1.5")

            def refuse(witness: Witness) -> None:
                witness.request(0)
                witness.expect_error("3.9")

            def pain(witness: Witness) -> None:
                witness.request(1)
                witness.expect_next("2.13")

            self.dropped_after(self.publisher(0), complete, "on_complete")
            self.dropped_after(self.lasting(3), refuse, "on_error")
            self.dropped_after(self.lasting(3), pain, "what it raised", on_item=_raise)

    @rs("3.17", "extra")
    def test_extra_spec317_demandBeyondAnyBoundSaturates(self) -> None:
        """``request(2**70)`` is unbounded demand, and further requests are no error."""
        self.exact()
        witness = self.subscribed(self.publisher(3), on_open=requesting(2**70, 2**70, 1))
        witness.expect_all(3, "3.17")

    @rs("1.9", "extra")
    def test_extra_spec109_closedExecutorFailsItsSubscriberAndNotTheCaller(self) -> None:
        """No signal can run there any more: ``on_subscribe``, then ``on_error``, and ``subscribe`` does not raise."""
        publisher = self.make_stranded_publisher()
        if publisher is None:
            pytest.skip("there is no publisher on a closed executor")
        witness = self.subscribed(publisher)
        witness.request(1)
        witness.expect_error("1.9")


def _raise(_witness: Witness) -> None:
    raise _Raising("the subscriber raises, by intent")


def _nobody(error: Exception, _subscriber: object, /) -> None:
    """Ignore a dropped error, without keeping a reference to it."""
