"""How a subscription reads from the WAL: in slices on the threads of the replayer, whose the cursor is meanwhile."""

from abc import abstractmethod
from collections.abc import Sequence

from publishers.blocks.slices import Slice
from publishers.errors import HistoryPruned, LogError
from publishers.fanout.batch import Batch
from publishers.fanout.gap import OnGap
from publishers.fanout.moving import Moving
from publishers.fanout.resync_slice import Bounds, read_kept, read_slice
from publishers.model.change import Change
from publishers.model.position import Position
from publishers.views.view import View

__all__ = ["Replaying"]


class Replaying(Moving):
    """A subscription that the replayer serves while the ring does not.

    Attributes:
        view: How it sees changes.
    """

    view: View
    _batch_bytes: int
    _batch_events: int
    _closed: bool
    _whole: bool

    def __init__(self, on_gap: OnGap) -> None:
        super().__init__(on_gap)
        self._replaying = False

    @property
    @abstractmethod
    def detached(self) -> bool:
        """Whether its publisher is detached."""

    def replay(self) -> bool:
        """Reads one slice from the WAL into the queue; answers whether to go on at once."""
        try:
            if self._slice():
                return True
        except OSError as error:
            self.fail(self._service.explain(LogError(f"the log could not be read: {error}")))
        except Exception as error:  # noqa: BLE001 - whatever it is, the subscriber must hear of it
            self.fail(self._service.explain(error))
        self._hand_back()
        return False

    def replay_stopped(self) -> None:
        """The log was closed while it waited for its turn."""
        self._hand_back()

    def _hand_back(self) -> None:
        self._replaying = False
        self._run(self._drain.signal)
        if self._drain.ended:  # it ended during the slice, and nothing may stay behind
            self._filled = None
            self._forget()

    def _slice(self) -> bool:
        cursor, service = self._cursor, self._service
        while True:
            room = min(self._drain.demand, self._batch_events)
            if (
                room == 0
                or self._sought is not None
                or self._paused
                or self._drain.ended
                or service.closed
                or self._closed
                or cursor.finished
            ):
                return False
            if cursor.enter():
                self._tell_state()
                return False
            upto = cursor.upto
            if cursor.next.version <= upto:
                break
            # Everything visible is read, but the ring is ahead already. First parked, then the watermark is read again:
            # whoever advances it in between finds this subscription parked, or is found here.
            self._parked_at = upto
            self._park(upto)
            if cursor.upto == upto:
                return False
            self._parked_at = None
        joined = cursor.join(Position(upto + 1, 0))
        taken: list[Slice] = []
        missing: HistoryPruned | None = None
        try:
            weight = service.options.replay_slice_bytes
            bounds = Bounds(upto, room, self._batch_bytes, weight, whole=self._whole)
            read_slice(cursor, service.frames, bounds, taken)
        except HistoryPruned as error:
            missing = self._lacking(error)
        finally:
            if joined and (cursor.finished or cursor.next.version <= upto or not cursor.enter()):
                cursor.leave()
        if cursor.live:
            self._tell_state()
        elif missing is not None and not taken:
            self._jump(missing.oldest)
        if taken:
            self._filled = Batch(tuple(taken), cursor.next, self.view)
        return not taken and not cursor.live

    def _lacking(self, error: HistoryPruned) -> HistoryPruned | None:
        """What it says is missing, if that is to be told and gone over; None if what had been looked up is gone only."""
        cursor = self._cursor
        if error.oldest <= cursor.next:
            cursor.location = None
            return None
        if self._on_gap == "fail":
            raise error
        return error

    def _resync(self, limit: int) -> Sequence[Change]:
        """Goes on in the WAL: with the frame in memory if it is there, else by the replayer."""
        cursor, service = self._cursor, self._service
        if service.closed or self._closed:
            return ()
        upto = cursor.upto
        if self._parked_at is not None:
            if self._parked_at == upto:
                return ()
            self._parked_at = None
        # What is expensive to match runs on no executor of a subscriber, which may be everybody's event loop.
        if not (self._whole or self.detached) and (
            pieces := read_kept(cursor, service.frames, upto, limit, self._batch_bytes)
        ):
            return Batch(tuple(pieces), cursor.next, self.view)
        self._replaying = True
        service.replayer.enlist(self)
        return ()

    @abstractmethod
    def _park(self, upto: int) -> None:
        """Waits for the watermark to advance beyond a version."""

    @abstractmethod
    def _forget(self) -> None:
        """Leaves every list of those who wait."""
