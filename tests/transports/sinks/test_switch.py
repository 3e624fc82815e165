"""The switch of a sink at run time: nothing is carried or held while it is off, and what is missed is told."""

import contextlib
import io
import json
import sqlite3

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, Criterion
from tests.harness.failing import failing
from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.targets import QUICK, Target, rigged
from transports.codec.changes import read_lines
from transports.sinks import FileSink, SinkError, SinkState, StreamSink, TargetUnavailable
from transports.sinks.sql import SqlSink
from transports.sinks.webhook import WebhookSink


def switched(rig, *, on=None, place=None):
    ordered = (
        (rig.runner.switch_on(place) if place else rig.runner.switch_on()) if on else rig.runner.switch_off()
    )
    rig.runner.step()
    return ordered.result(0)


def gaps(target):
    return [batch.gap and (batch.gap.first, batch.gap.next) for batch in target.taken]


def test_a_sink_that_is_off_carries_nothing_and_holds_no_history(tmp_path):
    """F127: what was on its way is finished, and the place is known, over restarts too."""
    with rigged(tmp_path) as rig:
        rig.commit(1)
        rig.drained()
        switched(rig)
        assert rig.runner.state is SinkState.OFF
        assert rig.runner.statistics().reason == "switched off by an operator"
        rig.commit(2)
        for _ in range(2):
            rig.later(60.0)
            rig.runner.step()
            assert (rig.target.keys, list(rig.log.slots)) == (["1"], [])
            rig.again()
            rig.runner.step()
            assert rig.runner.state is SinkState.OFF
        rig.runner.resume()
        rig.runner.step()
        assert rig.runner.state is SinkState.OFF
        moved = rig.runner.seek("earliest")
        rig.runner.step()
        with pytest.raises(SinkError, match="is off; switch it on"):
            moved.result(0)


def test_what_was_missed_is_told_with_the_first_batch_and_by_the_status(tmp_path):
    """F127: until the target has confirmed it, also over a crash."""
    with rigged(tmp_path, criteria=Criterion(entity_types={"order"})) as rig:
        rig.commit(1)
        rig.drained()
        off = str(rig.log.token(rig.log.head))
        switched(rig)
        rig.commit(2)
        rig.commit(3)
        position = switched(rig, on=True)
        assert position == rig.log.head
        gap = (off, str(rig.log.token(position)))
        assert tuple(rig.runner.statistics().gap) == gap
        rig.again()
        rig.target.plan = [TargetUnavailable("down")]
        rig.commit(4)
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        rig.later(2.0)
        rig.drained()
        rig.commit(5)
        rig.drained()
        assert (rig.target.keys, gaps(rig.target)) == (["1", "4", "5"], [None, gap, None])
        rig.stored()
        assert rig.runner.statistics().gap is None


def test_it_may_go_on_where_it_was_while_that_is_kept(tmp_path):
    """F127: then nothing is missed."""
    with rigged(tmp_path) as rig:
        rig.commit(1)
        rig.drained()
        place = rig.log.head
        switched(rig)
        rig.commit(2)
        assert switched(rig, on=True, place=place) == place
        rig.drained()
        assert (rig.target.keys, gaps(rig.target)) == (["1", "2"], [None, None])
        with pytest.raises(SinkError, match="is on; seek moves a sink that is on"):
            switched(rig, on=True)


def test_a_sink_that_began_with_rows_goes_on_at_the_place_that_is_named(tmp_path):
    """F127: the rows of a first start do not come in place of it."""
    with rigged(tmp_path, snapshot="initial", log={"state": True}) as rig:
        rig.commit(1)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        rig.commit(2)
        rig.drained()
        place, before = rig.log.head, len(rig.target.taken)
        switched(rig)
        rig.commit(3)
        rig.commit(4)
        assert switched(rig, on=True, place=place) == place
        rig.drained()
        assert [one.key for batch in rig.target.taken[before:] for one in batch.changes if one.key] == [
            "3",
            "4",
        ]


def test_the_place_that_a_target_stores_does_not_win_over_what_was_left_out(tmp_path):
    """F127: else it would begin before the gap again."""
    with rigged(tmp_path, Target(stores=True)) as rig:
        rig.commit(1)
        rig.drained()
        rig.stored()
        switched(rig)
        rig.commit(2)
        switched(rig, on=True)
        rig.again()  # before it was told to the target
        rig.commit(3)
        rig.drained()
        assert rig.target.keys == ["1", "3"]
        rig.again()
        rig.commit(4)
        rig.drained()
        assert rig.target.keys == ["1", "3", "4"]


def test_one_that_never_ran_and_one_that_is_switched_twice(tmp_path):
    """F127: what was not told yet is part of the next gap."""
    with rigged(tmp_path) as rig:
        switched(rig)
        first = str(rig.log.token(rig.log.head))
        rig.commit(1)
        switched(rig, on=True)
        switched(rig)
        rig.commit(2)
        switched(rig)
        switched(rig, on=True)
        rig.commit(3)
        rig.drained()
        assert (rig.target.keys, gaps(rig.target)[0][0]) == (["3"], first)


def test_a_switch_that_was_cut_short_is_finished(tmp_path, monkeypatch):
    """F127: a crash between the note and the slot, on the way out and on the way in."""
    with rigged(tmp_path) as rig:
        rig.commit(1)
        rig.drained()
        with monkeypatch.context() as patch:
            failing(patch, type(rig.log.slots), "drop", OSError("gone"))
            with pytest.raises(OSError, match="gone"):
                switched(rig)
        rig.again()
        rig.runner.step()
        assert (rig.runner.state, list(rig.log.slots)) == (SinkState.OFF, [])
        rig.log.slots.create("stock", since="earliest")
        assert switched(rig, on=True) == rig.log.head


def test_a_note_of_a_strange_hand_is_refused(tmp_path):
    """F127."""
    with rigged(tmp_path) as rig:
        switched(rig)
        note = rig.path / "sinks" / "stock.json"
        assert json.loads(note.read_text())["off"]
        note.write_text("{")
        with pytest.raises(InvalidOption, match=r"stock\.json"):
            rig.made()
        note.unlink()


def left_out(rig):
    """Switches a sink off and on between the keys 1 and 3; answers what it has left out."""
    rig.commit(1)
    rig.drained()
    switched(rig)
    rig.commit(2)
    switched(rig, on=True)
    rig.commit(3)
    gap = rig.runner.statistics().gap
    rig.until(lambda: rig.later(60.0) or rig.runner.statistics().confirmed == rig.log.head)
    return {"first": gap.first, "next": gap.next}


def test_a_file_has_a_line_for_what_was_left_out_and_can_be_appended_to_another_log(tmp_path):
    """F101, F127: before the changes that come behind it."""
    with rigged(tmp_path / "log", FileSink(tmp_path / "out")) as rig:
        gap = left_out(rig)
        (path,) = (tmp_path / "out").glob("*.jsonl.tmp")
        told = [json.loads(line) for line in path.read_text().splitlines()]
        assert [one.get("gap", one.get("key")) for one in told] == [None, "1", gap, None, "3"]
        with path.open("rb") as lines, ChangeLog.open(tmp_path / "copy", **QUICK) as copy:
            copy.commit(list(read_lines(lines)))
            assert [one.key for one in copy.history(None, "earliest").changes] == [None, "1", "3"]


def test_standard_output_has_the_same_line(tmp_path):
    """F101, F127."""
    stream = io.BytesIO()
    with rigged(tmp_path / "log", StreamSink(stream)) as rig:
        gap = left_out(rig)
        assert json.loads(stream.getvalue().splitlines()[2]) == {"gap": gap}


@pytest.mark.parametrize("create", [True, False])
def test_a_database_has_a_row_for_what_was_left_out_in_the_transaction_of_what_follows(tmp_path, create):
    """F106, F127: in a table beside that of the places; where it may not be made it is asked for before anything is sent."""
    url = f"sqlite:///{tmp_path}/out.db"
    if not create:
        with (
            rigged(tmp_path / "log", SqlSink(url)) as rig,
            contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as base,
        ):
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            reason = rig.runner.statistics().reason
            assert reason.startswith("there is no table penstock_places, penstock_gaps: CREATE TABLE ")
            base.executescript(reason.partition(": ")[2])
            base.execute(
                'CREATE TABLE "order" (key TEXT PRIMARY KEY, body TEXT, penstock_version BIGINT, penstock_index BIGINT)'
            )
            base.commit()
    with (
        rigged(tmp_path / "other", SqlSink(url, create_tables=create)) as rig,
        contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as base,
    ):
        gap = left_out(rig)
        rows = base.execute("SELECT sink, first, next FROM penstock_gaps").fetchall()
        assert rows == [("stock", gap["first"], gap["next"])]
        rig.died()  # it is told once more, and stands there once
        rig.commit(4)
        rig.drained()
        assert len(base.execute("SELECT * FROM penstock_gaps").fetchall()) == 1


def test_a_webhook_is_told_in_body_and_header(tmp_path):
    """F127."""
    with Receiver() as receiver:
        hook = WebhookSink(receiver.url, allow=["127.0.0.0/8", "::1/128"])
        with rigged(tmp_path, hook) as rig:
            rig.commit(1)
            rig.drained()
            switched(rig)
            rig.commit(2)
            switched(rig, on=True)
            rig.commit(3)
            rig.drained()
            rig.commit(4)
            rig.drained()
            first, told, last = receiver.received
            gap = json.loads(told.body)["gap"]
            assert told.headers["penstock-gap"] == f"{gap['first']} {gap['next']}"
            assert rig.log.position_of(gap["first"]) == (2, 0)
            assert rig.log.position_of(gap["next"]) == (3, 0)
            for other in (first, last):
                assert "gap" not in json.loads(other.body)
                assert "penstock-gap" not in other.headers
