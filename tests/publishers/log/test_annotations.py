"""Transactions that are left out by their annotations: live, from the log, and in slots, whose places move all the same."""

import pytest

import flow
from publishers import ChangeLog, Criteria, Criterion, Position, upsert
from tests.publishers.support import QUICK, Probe, opened, order, wait_until

NO_BACKFILL = Criterion(entity_types={"order"}, annotations="backfill not exists")


def keys_of(changes):
    return [change.key for change in changes]


def test_transactions_are_left_out_live_and_from_the_log():
    """F164: also of a wish for everything, whose TRANSACTION events are left out with the rest."""
    with opened() as log:
        probes = Probe(99), Probe(99)
        for probe, wish in zip(probes, (NO_BACKFILL, Criterion(annotations="job == 7")), strict=True):
            log.changes(wish).subscribe(probe, executor=flow.INLINE)
        log.commit([order(1)])
        log.commit([order(2)], meta={"backfill": True, "job": 7})
        log.commit([order(3)], meta={"user": "ann"})
        found, everything = (probe.changes for probe in probes)
        assert keys_of(found) == ["1", "3"]
        assert [tuple(change.position) for change in everything] == [(2, 0), (2, 1)]
        assert list(log.history(NO_BACKFILL, "earliest").changes) == found
        assert list(log.history(Criterion(annotations="job == 7"), "earliest").changes) == everything


def test_all_conditions_on_annotations_must_hold_live_and_from_the_log():
    """F164: in any order, of one criterion; of several criterions one is enough."""
    job, user = "job == 7", "user == ann"
    metas = [None, {"job": 7}, {"user": "ann"}, {"job": 7, "user": "ann"}, {"job": 8, "user": "ann"}]
    wishes = {
        (Criterion(annotations=[job, user]),): ["3"],
        (Criterion(annotations=[user, job], entity_types={"order"}),): ["3"],
        (Criterion(annotations=job), Criterion(annotations=user)): ["1", "2", "3", "4"],
    }
    with opened() as log:
        probes = {}
        for wish in wishes:
            probes[wish] = Probe(99)
            log.changes(*wish).subscribe(probes[wish], executor=flow.INLINE)
        for number, meta in enumerate(metas):
            log.commit([order(number)], meta=meta)
        for wish, keys in wishes.items():
            assert [key for key in keys_of(probes[wish].changes) if key] == keys
            assert list(log.history(Criteria.of(*wish), "earliest").changes) == probes[wish].changes


@pytest.mark.parametrize("resume", [0, 27])
def test_every_part_of_a_transaction_that_takes_several_frames_is_left_out(tmp_path, resume):
    """F164: also for whoever goes on inside of it, and for who reads the log from a disk."""
    wide = upsert("order", "wide", {"text": "x" * 5_000})
    with ChangeLog.open(tmp_path / "log", **QUICK, frame_bytes=4096) as log:
        log.commit([wide] * 40, meta={"backfill": True})
        log.commit([wide] * 3, meta={"user": "ann"})
    with ChangeLog.open(tmp_path / "log", read_only=True) as log:
        found = log.history(NO_BACKFILL, Position(1, resume), limit=99).changes
        assert [tuple(change.position) for change in found] == [(2, 1), (2, 2), (2, 3)]
        wanted = Criterion(annotations="backfill == true")
        assert len(log.history(wanted, Position(1, resume), limit=99).changes) == 41 - resume


def test_the_place_of_a_slot_moves_over_what_is_left_out():
    """F164: so that it holds no history."""
    with opened() as log:
        log.slots.create("stock", NO_BACKFILL)
        with log.slots.open("stock") as slot:
            probe = Probe(99)
            slot.changes().subscribe(probe, executor=flow.INLINE)
            for _ in range(5):
                log.commit([order(1)], meta={"backfill": True})
            wait_until(lambda: slot.delivered == log.head)
            assert slot.ack(slot.delivered)
            assert (probe.changes, slot.position) == ([], log.head)
