"""A producer's newest sequence that comes again: a duplicate if it has the same changes, else a conflict."""

from datetime import UTC, datetime
from itertools import product

import pytest

from penstock_cdc.errors import InvalidOption, PredecessorFailed, ProducerConflict
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Position, remove, truncate, upsert
from publishers.commits import pending
from publishers.mutations.mutation import columns_of
from tests.publishers.support import QUICK, Held, opened, order, wait_until

BODY = {"total": 1.5, "name": "a"}
FIRST = [upsert("order", "1", BODY, before={"total": 1}, changed=["total", "name"]), remove("item", "2")]

SAME = {
    "the same": FIRST,
    "members in another order": [
        upsert(
            "order", "1", b'{ "name": "\\u0061", "total":1.5}', before={"total": 1}, changed=["name", "total"]
        ),
        remove("item", "2"),
    ],
    "another entry version": [
        upsert("order", "1", BODY, before={"total": 1}, changed=["total", "name"], entry_version=7),
        remove("item", "2"),
    ],
    "another time of expiry": [
        upsert(
            "order",
            "1",
            BODY,
            before={"total": 1},
            changed=["total", "name"],
            expires_at=datetime(2040, 1, 1, tzinfo=UTC),
        ),
        remove("item", "2"),
    ],
}


def first(body=BODY, **more):
    return [
        upsert("order", "1", body, **({"before": {"total": 1}, "changed": ["total", "name"]} | more)),
        FIRST[1],
    ]


OTHER = {
    "nothing": [],
    "fewer": FIRST[:1],
    "more": [*FIRST, remove("item", "3")],
    "another order": FIRST[::-1],
    "another operation": [FIRST[0], upsert("item", "2", b"null")],
    "all of a type": [FIRST[0], truncate("item")],
    "another type": [FIRST[0], remove("order", "2")],
    "another key": [FIRST[0], remove("item", "02")],
    "another value": first(BODY | {"total": 1.6}),
    "text for a number": first(BODY | {"total": "1.5"}),
    "true for one": first(before={"total": True}),
    "one member more": first(BODY | {"more": None}),
    "no before": first(before=None),
    "other fields": first(changed=["total"]),
    "another meta": first(meta={"by": "ann"}),
    "a change of a field": first(changed=None, changes=[set_field("total", 1.5), set_field("name", "a")]),
}


def columns(log, changes, **named):
    return log.commit_columns([columns_of([one], keyed=True) for one in changes], **named)


WAYS = {
    "commit": ChangeLog.commit,
    "submit": lambda log, changes, **named: log.submit(changes, **named).result(),
    "columns": columns,
}
KEPT = {
    "in memory": {},
    "compressed": {"compress": True},
    "spooled, in frames": {"spool_bytes": 1, "frame_bytes": 4096},
    "stamped with an origin": {"origin": "rome"},
    "synced later": {"sync": "interval"},
}


@pytest.mark.parametrize("kept", KEPT)
def test_the_newest_sequence_is_a_repetition_only_with_the_same_changes(kept, tmp_path):
    """Each way of the first commit and of the second one, each kind of difference."""
    with ChangeLog.open(tmp_path, **(QUICK | KEPT[kept])) as log:
        log.commit([schema("item", b"{}")])
        for number, (way, again) in enumerate(product(WAYS, WAYS), 1):
            written = WAYS[way](log, FIRST, producer=("p", number), meta={"attempt": 1})
            for what, changes in SAME.items():
                commit = WAYS[again](log, changes, producer=("p", number), meta={"attempt": 2})
                assert commit[:2] == (written.version, True), (way, again, what)
            for what, changes in OTHER.items():
                with pytest.raises(ProducerConflict) as found:
                    WAYS[again](log, changes, producer=("p", number))
                error = found.value
                assert (error.producer, error.sequence, error.version) == ("p", number, written.version), (
                    way,
                    again,
                    what,
                )
                assert WAYS[again](log, changes, producer=("p", number), trust=True).duplicate
                if number > 1:
                    assert WAYS[again](log, changes, producer=("p", number - 1)).duplicate
        wait_until(lambda: log.head.version == 2 + len(WAYS) ** 2)
    with ChangeLog.open(tmp_path, **(QUICK | KEPT[kept])) as log, pytest.raises(ProducerConflict):
        log.commit(OTHER["fewer"], producer=("p", len(WAYS) ** 2))


@pytest.mark.parametrize("options", [{}, {"spool_bytes": 1}], ids=["in memory", "spooled"])
def test_a_conflict_within_a_group_is_found_too_and_refuses_what_follows_it(options, monkeypatch):
    with opened(**options) as log:
        log.commit(FIRST)
        held = Held(log, monkeypatch)
        lead = log.submit([order(0)])
        assert held.inside.wait(60)
        first = log.submit(FIRST, producer=("p", 1))
        same = log.submit(SAME["members in another order"], producer=("p", 1))
        other = log.submit(OTHER["fewer"], producer=("p", 1), after=first)
        next_one = log.submit(FIRST, producer=("p", 2), after=other)
        held.go.set()
        assert (lead.result().version, first.result().version) == (2, 3)
        assert same.result()[:2] == (3, True)
        with pytest.raises(ProducerConflict, match="under sequence 1, as version 3"):
            other.result()
        with pytest.raises(PredecessorFailed):
            next_one.result()
        assert log.head.version == 4


def test_what_is_withheld_is_compared_and_what_is_no_longer_kept_is_not():
    with opened(segment_bytes=65_536, retain_bytes=0, retain_age=None) as log:
        log.commit(FIRST, producer=("p", 1), visible=False)
        with pytest.raises(ProducerConflict):
            log.commit(OTHER["fewer"], producer=("p", 1))
        log.publish(1)
        for _ in range(6):
            log.commit([upsert("order", "1", {"pad": "x" * 60_000})])
        wait_until(lambda: log.oldest > Position(1, 0))
        assert log.commit(OTHER["fewer"], producer=("p", 1))[:2] == (1, True)


def test_commits_that_repeat_nothing_compare_nothing(monkeypatch):
    compared = []
    monkeypatch.setattr(pending, "_conflict", lambda *given: compared.append(given))
    with opened() as log:
        for number in range(3):
            log.commit(FIRST, producer=("p", number))
            log.commit(FIRST)
            log.commit(FIRST, producer=("p", number), trust=True)
        log.commit(FIRST, producer=("p", 1))
        assert not compared
        log.commit(FIRST, producer=("p", 2))
        assert len(compared) == 1
        with pytest.raises(InvalidOption, match="trust"):
            log.commit(FIRST, producer=("p", 2), trust=None)


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_a_repetition_is_compared_also_with_what_is_not_durable_yet(tmp_path, sync):
    """F145: the client asks again before the housekeeping has synced."""
    with ChangeLog.open(tmp_path / "log", sync=sync, sync_interval=60.0) as log:
        assert not log.commit(first(), producer=("etl", 1)).duplicate
        assert log.commit(first(), producer=("etl", 1)).duplicate
        with pytest.raises(ProducerConflict):
            log.commit(first({"total": 2}), producer=("etl", 1))
