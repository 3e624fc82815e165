"""One run of the demo, from the prepared files to the verdict."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

from penstock_cdc import ChangeLog, Server
from penstock_cdc.errors import PositionError
from penstock_flights.afterwards import NAME as AFTERWARDS
from penstock_flights.afterwards import Afterwards
from penstock_flights.crew import Remote
from penstock_flights.display import Display
from penstock_flights.files import read_json, replace_json
from penstock_flights.front import Front
from penstock_flights.ledger import Ledger
from penstock_flights.pipeline import Pipeline
from penstock_flights.plan import IN_PROCESS, SLOW, SUBSCRIBERS, WEBSOCKET, DemoPlan, Wanted
from penstock_flights.progress import DemoProgress, ProgressRow, RateMeter
from penstock_flights.reception import Reception, ReceptionPlace
from penstock_flights.resident import Resident
from penstock_flights.verdict import VerdictLine, judge

__all__ = ["DemoFailed", "Run"]

_TICK: Final = 0.25  # seconds between two steps; each step delays the threads that deliver
_HURRY_AT: Final = 0.4  # of all changes
_HURRY_PATIENCE: Final = (
    5.0  # seconds after the last batch until a slow subscriber hurries even if never overtaken
)
_STATE_PATIENCE: Final = 30.0  # seconds after the last change for the server to report LIVE
_STALLED: Final = 180.0  # seconds, from the first batch on: before it a busy machine may compile for minutes
_TO_THE_BOARD: Final = {
    "Spark starts": "Spark is starting. The first flights come in some seconds.",
    "Spark streams": "Spark streams the first flights.",
}


class DemoFailed(Exception):
    """A failure that ends the demo; the text describes it in one line."""


class Run:
    """Opens and serves the log, starts the subscribers and Spark's stream, waits for all subscribers, compares.

    Args:
        plan: Size and directory of the run.
        events: The directory of the prepared files.
        pipeline: Spark, which is being started.
        display: Shows the progress.
        front: The server, which will serve the log.
    """

    def __init__(
        self, plan: DemoPlan, events: Path, pipeline: Pipeline, display: Display, front: Front
    ) -> None:
        self.plan = plan
        self._events = events
        self._pipeline = pipeline
        self._display = display
        self._front = front
        self._stack = ExitStack()
        self._ledger = Ledger()
        self._log: ChangeLog
        self._resident: Resident
        self._remotes: tuple[Remote, ...] = ()
        self._meters = {name: RateMeter() for name in ("log", *(one.name for one in SUBSCRIBERS))}
        self._moved_at = self._streamed_at = self._arrived_at = monotonic()
        self._moved: tuple[object, ...] = ()
        self._hurried = False
        self._waiting = Event()

    @property
    def server(self) -> Server:
        """The server."""
        return self._front.server

    @property
    def versions(self) -> int:
        """The number of versions of the log."""
        return self._ledger.version

    @property
    def newest_key(self) -> str | None:
        """The key of the newest change, as an example for the hints."""
        newest = self._resident.reception.newest
        return None if newest is None else newest.key

    @property
    def nbytes(self) -> int:
        """Size of the log on the disk in bytes."""
        total = 0
        for file in self.plan.log.iterdir():
            with suppress(FileNotFoundError):  # the file was removed meanwhile
                total += file.stat().st_size
        return total

    @property
    def seconds(self) -> float:
        """Seconds from the start of Spark's query until the last subscriber had its last change."""
        began = self._pipeline.streaming
        return 0.0 if began is None else max(0.0, self._arrived_at - began)

    def open(self) -> None:
        """Opens and serves the log, and starts the subscribers.

        Raises:
            PenstockError: If the log cannot be opened.
        """
        plan, stack = self.plan, self._stack
        plan.directory.mkdir(parents=True, exist_ok=True)
        if read_json(plan.result) is not None:
            self._display.done(
                "an earlier run came to its end here: everybody reads its log again from the beginning"
            )
            self._start_over(SUBSCRIBERS)
        self._log = stack.enter_context(ChangeLog.open(plan.log, **plan.log_options))
        if found := self._log.head.version - 1:
            self._display.done(f"the log holds {found} micro-batches already; Spark goes on behind them")
        stack.callback(self._ledger.stop)
        self._ledger.start(self._log)
        self._start_over(one for one in SUBSCRIBERS if not self._knows(one))
        stack.callback(self.server.stop)
        self._front.logs[self._log.name] = self._log
        self._resident = Resident(
            self._log, IN_PROCESS, Reception(plan.place(IN_PROCESS)), max_lag=plan.batch_events
        )
        stack.callback(self._resident.stop)
        self._remotes = tuple(
            Remote(wanted, plan.place(wanted), step=plan.slow_step) for wanted in (WEBSOCKET, SLOW)
        )
        self._resident.start()
        for remote in self._remotes:
            stack.callback(remote.leave)
            remote.start(self.server.url)

    def follow(self, look: Callable[[], None]) -> tuple[VerdictLine, ...]:
        """Streams, waits until every subscriber has all its changes, and compares them with Spark's digests.

        Args:
            look: Called several times a second; raises to end the run.

        Raises:
            DemoFailed: If Spark or a subscriber ends early.
        """
        self._pipeline.stream(self._log, self._events, self.plan, SUBSCRIBERS)
        while not self._step():
            look()
            self._waiting.wait(_TICK)
        self._dismiss()
        for remote in self._remotes:
            if not remote.finished:
                raise DemoFailed(f"{remote.wanted.title}: {remote.error or 'it did not say how it ended'}")
        self._resident.stop()
        self._resident.reception.save()
        places = {remote.wanted.name: remote.place for remote in self._remotes}
        places[IN_PROCESS.name] = self._resident.reception.place
        findings = judge(SUBSCRIBERS, places, self._pipeline.expected, overtakes=self.plan.overtakes)
        stored = {finding.wanted.name: finding.to_json() for finding in findings}
        replace_json(self.plan.result, {"events": self.plan.events, "subscribers": stored})
        return findings

    def go_on(self) -> Afterwards:
        """Commits further flights to a second log, so that the board keeps moving."""
        afterwards = Afterwards(self.plan.directory / AFTERWARDS, self._events, self._front.logs)
        self._stack.callback(afterwards.stop)
        return afterwards

    def close(self) -> None:
        """Shuts down: subscribers store their positions, Spark ends its batch, the server stops, the log is closed."""
        for remote in self._remotes:
            remote.tell("finish")
        self._pipeline.stop()
        self._stack.close()

    def _start_over(self, subscribers: Iterable[Wanted]) -> None:
        """Deletes the stored positions of some subscribers, then any verdict, which was made from them."""
        for wanted in subscribers:
            self.plan.place(wanted).unlink(missing_ok=True)
        self.plan.result.unlink(missing_ok=True)

    def _knows(self, wanted: Wanted) -> bool:
        """Whether the log has the stored position of a subscriber; it has not after a user deleted the log."""
        try:
            cursor = ReceptionPlace.load(self.plan.place(wanted)).cursor
            return cursor is None or self._log.position_of(cursor) is not None
        except PositionError:
            return False

    def _dismiss(self) -> None:
        for remote in self._remotes:
            remote.tell("finish")
        for remote in self._remotes:
            remote.leave()

    # One step of `follow`.

    def _step(self) -> bool:
        """Shows the progress; returns whether the run is complete."""
        progress = self._observe()
        self._display.show(progress)
        self._front.say(_TO_THE_BOARD.get(progress.doing, f"{progress.doing}."))
        now = monotonic()
        if self._pipeline.error is not None:
            raise DemoFailed(self._pipeline.error)
        if (error := self._resident.error or self._ledger.error) is not None:
            raise DemoFailed(f"{IN_PROCESS.title}: {error}")
        for remote in self._remotes:
            if remote.error is not None or remote.finished:
                raise DemoFailed(f"{remote.wanted.title}: {remote.error or 'it ended too early'}")
        moved = (
            progress.doing,
            progress.batch,
            len(self._pipeline.expected),
            *(row.reached for row in progress.rows),
        )
        if moved != self._moved:
            self._moved, self._moved_at = moved, now
        elif now - self._moved_at > _STALLED and (progress.sink.batches or self._pipeline.streamed.is_set()):
            raise DemoFailed(f"nothing has moved for {_STALLED:g} s, while {progress.doing}")
        if not self._pipeline.streamed.is_set():
            self._streamed_at = self._arrived_at = now
        self._urge(progress, now)
        return self._done(progress, now)

    def _urge(self, progress: DemoProgress, now: float) -> None:
        """Sends ``hurry`` to slow subscribers once they were overtaken and 40 % of the changes are committed."""
        if self._hurried:
            return
        overtaken = all(row.resyncs for row, one in zip(progress.rows, SUBSCRIBERS, strict=True) if one.slow)
        late = progress.committed >= _HURRY_AT * self.plan.events
        if (overtaken and late) or now - self._streamed_at > (_HURRY_PATIENCE if self.plan.overtakes else 0):
            self._hurried = True
            for remote in self._remotes:
                if remote.wanted.slow:
                    remote.tell("hurry")

    def _done(self, progress: DemoProgress, now: float) -> bool:
        if not self._pipeline.streamed.is_set():
            return False
        if self._ledger.version < self._log.head.version - 1:
            return False
        if self._ledger.changes != self.plan.events:
            raise DemoFailed(
                f"the log holds {self._ledger.changes:,} changes, but {self.plan.events:,} were prepared; "
                "start over with --fresh"
            )
        if any(row.behind for row in progress.rows):
            self._arrived_at = now
            return False
        if any(row.state != "LIVE" for row in progress.rows) and now - self._arrived_at < _STATE_PATIENCE:
            return False
        return len(self._pipeline.expected) == len(SUBSCRIBERS)

    def _observe(self) -> DemoProgress:
        now, log, plan = monotonic(), self._log, self.plan
        committed = self._ledger.changes
        place, reception = self._resident.reception.place, self._resident.reception
        met = [(IN_PROCESS, place, reception.state, self._resident.demand)]
        met += [(one.wanted, one.place, one.state, one.demand) for one in self._remotes]
        rows = []
        for wanted, at, state, demand in met:
            reached = 0 if at.cursor is None else self._ledger.before(log.position_of(at.cursor))
            rate = self._meters[wanted.name].read(now, at.count)
            behind = max(0, committed - reached)
            rows.append(
                ProgressRow(
                    wanted.title, wanted.wants, at.count, rate, reached, behind, demand, state, at.resyncs
                )
            )
        return DemoProgress(
            events=plan.events,
            committed=committed,
            rate=self._meters["log"].read(now, committed),
            batch=self._ledger.version,
            batches=plan.batches,
            nbytes=self.nbytes,
            sink=self._pipeline.statistics,
            reached=_moment(reception),
            doing=self._doing(),
            rows=tuple(rows),
        )

    def _doing(self) -> str:
        pipeline = self._pipeline
        if pipeline.version is None:
            return "Spark starts"
        if not pipeline.streamed.is_set():
            return "Spark streams"
        if len(pipeline.expected) < len(SUBSCRIBERS):
            return "Spark digests the source, to compare"
        return "the last ones catch up"


def _moment(reception: Reception) -> str | None:
    """The time in the data of the newest change."""
    newest = reception.newest
    body = None if newest is None else newest.body
    return body["time"] if isinstance(body, dict) and isinstance(body.get("time"), str) else None
