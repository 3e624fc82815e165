"""Retention while somebody reads: what is told of it comes in its place, and nobody goes back."""

import pytest

import flow
from penstock_cdc.errors import HistoryPruned
from publishers import Position, upsert
from tests.harness.inside import catalog_of, files_of, housekeeping_of, service_of
from tests.publishers.movement import Mover
from tests.publishers.support import everything, fill, opened, wait_until


def raising(original, times, oldest):
    def locate(*place):
        if times and times.pop():
            raise HistoryPruned(oldest)
        return original(*place)

    return locate


@pytest.mark.parametrize("on_gap", ["fail", "jump"])
def test_who_finds_gone_what_he_had_looked_up_goes_on_where_he_is_if_that_is_kept(monkeypatch, on_gap):
    """T12, E37, F65: in the middle of a transaction; it jumped back to its beginning, or ended with HistoryPruned."""
    with opened(ring_events=2) as log:
        fill(log, 1, changes=50)
        fill(log, 3)
        truth = [place for place in everything(log) if place >= Position(1, 20)]
        frames = service_of(log).frames
        monkeypatch.setattr(frames, "locate", raising(frames.locate, [True], Position(1)))
        probe = Mover(first=10**6)
        log.changes(since=Position(1, 20), on_gap=on_gap).subscribe(probe)
        wait_until(lambda: probe.positions == truth or probe.terminals, probe.state)
        assert probe.positions == truth
        assert (probe.gaps, probe.error) == ([], None)
        assert probe.clean


def test_a_gap_is_told_before_what_follows_it_whoever_is_faster(monkeypatch):
    """T12, E37: what the replayer has INLINE subscribers told goes over a pool, where the last may be the first."""
    with opened(ring_events=2) as log:
        fill(log, 10)
        service = service_of(log)
        frames = service.frames
        monkeypatch.setattr(frames, "locate", raising(frames.locate, [True], Position(5)))
        aside = []
        monkeypatch.setattr(type(service), "run_aside", lambda self, run: aside.append(run))
        probe = Mover()
        log.changes(since=Position(1), on_gap="jump").subscribe(probe, executor=flow.INLINE)
        probe.request(10**6)
        wait_until(lambda: len(aside) >= 2)
        monkeypatch.undo()
        for run in reversed(aside):
            run()
        probe.wait_for(1)
        assert [before for _, before in probe.gaps] == [0]
        assert probe.positions[0] == Position(5)


def test_statistics_are_told_while_retention_deletes(monkeypatch):
    """T15: a segment that goes while its size is asked for; found without a global interpreter lock."""
    with opened(segment_bytes=65_536, fill_step=0, frame_bytes=4096, retain_bytes=None) as log:
        for _ in range(12):
            log.commit([upsert("order", "1", {"fill": "x" * 20_000})])
        housekeeping_of(log).close()
        retention = files_of(log).retention
        catalog = catalog_of(retention)
        assert len(catalog.entries) > 2
        size, gone = type(catalog).size, []

        def taken(self, number):
            if not gone:
                gone.append(number)
                catalog.drop(number + 1)
                raise FileNotFoundError(number)
            return size(self, number)

        monkeypatch.setattr(type(catalog), "size", taken)
        log.statistics()
        assert gone
        gone.clear()
        assert retention.bytes > 0


def test_a_segment_that_somebody_else_has_taken_is_missed(monkeypatch):
    """Retention is no excuse for what it has not deleted."""
    with opened(segment_bytes=65_536, fill_step=0, frame_bytes=4096, retain_bytes=None) as log:
        for _ in range(12):
            log.commit([upsert("order", "1", {"fill": "x" * 20_000})])
        housekeeping_of(log).close()

        def taken(self, number):
            raise FileNotFoundError(number)

        with monkeypatch.context() as patched:
            patched.setattr(type(catalog_of(files_of(log).retention)), "size", taken)
            with pytest.raises(FileNotFoundError):
                _ = files_of(log).retention.bytes
