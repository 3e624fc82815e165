import gc
import weakref
from pathlib import Path

import pytest

import flow
from flow import Drain
from tests.flow.probes import ManualExecutor, Probe, QueueFeed


def started(probe, feed, **options):
    drain = Drain(probe, feed, **options)
    drain.start()
    return drain


@pytest.mark.parametrize("end", ["cancel", "complete", "fail", "illegal"])
@pytest.mark.parametrize("executor", [None, "manual", "stuck"])
def test_rule_313_every_reference_is_dropped_at_the_end(end, executor):
    where = None if executor is None else ManualExecutor()
    feed = QueueFeed()
    probe = Probe(first=1)
    drain = started(probe, feed, executor=where)
    if executor == "manual":
        where.run_all()
    references = [weakref.ref(probe), weakref.ref(feed)]
    if end == "cancel":
        drain.cancel()
    elif end == "complete":
        feed.end(flow.COMPLETED)
        drain.signal()
    elif end == "fail":
        drain.fail(ValueError())
    else:
        drain.request(0)
    if where is not None and not (executor == "stuck" and end == "cancel"):
        # A cancelled drain lets go even if its executor never runs again.
        where.run_all()
    del probe, feed
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert drain.ended


class Raising(Probe):
    """Raises in one signal, through frames that know it."""

    def __init__(self, where, kept):
        super().__init__(first=1)
        self.where = where
        self.kept = kept

    def on_subscribe(self, subscription, /):
        super().on_subscribe(subscription)
        self.explode("on_subscribe")

    def on_next(self, item, /):
        self.explode("on_next")

    def on_error(self, error, /):
        self.kept.append(error)
        self.explode("on_error")

    def explode(self, here):
        me = self
        if here != self.where:
            return
        try:
            raise OSError(repr(me))
        except OSError as error:
            raise ValueError(repr(me)) from error


class FailingFeed(QueueFeed):
    def pull(self, limit, /):
        raise OSError("disk")


@pytest.mark.parametrize("where", ["on_subscribe", "on_next", "on_error", "tell", "pull"])
def test_rule_313_the_traceback_of_a_kept_error_does_not_keep_the_subscriber(dropped, where):
    executor = ManualExecutor()
    kept = []

    def begin():
        probe = Raising(where, kept)
        feed = FailingFeed() if where == "pull" else QueueFeed([1])
        return weakref.ref(probe), started(probe, feed, executor=executor)

    # Run from a frame that does not know the subscriber: a traceback keeps the callers too.
    reference, drain = begin()
    executor.run_all()
    if where == "on_error":
        drain.fail(OSError())
    if where == "tell":
        drain.notify("x", lambda subscriber: subscriber.explode("tell"))
    executor.run_all()
    assert drain.ended
    assert [*dropped.errors, *kept]
    gc.collect()
    assert reference() is None


def test_rule_313_an_interrupt_that_is_kept_does_not_keep_the_subscriber():
    def explode(item):
        raise KeyboardInterrupt

    def run():
        probe = Probe(on_item=explode)
        drain = started(probe, QueueFeed([1]))
        try:
            drain.request(1)
        except KeyboardInterrupt as interrupt:
            frames = []
            traceback = interrupt.__traceback__
            while traceback is not None:
                if traceback.tb_frame.f_code.co_filename.startswith(str(Path(flow.__file__).parent)):
                    frames.append(traceback.tb_frame)
                traceback = traceback.tb_next
            return probe, frames
        raise AssertionError

    probe, frames = run()
    assert frames
    for frame in frames:
        assert probe not in frame.f_locals.values()
