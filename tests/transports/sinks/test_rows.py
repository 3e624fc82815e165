"""Rows before changes, and again: a target that begins with nothing, and one that is repaired."""

import pytest

from publishers import ChangeLog, Criterion, Operation, Position, upsert
from publishers.errors import PenstockError, SnapshotGone
from publishers.snapshots import PageSource
from tests.harness.failing import failing
from tests.harness.inside import connection_of
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import HandClock, Target, rigged
from tests.transports.sinks.test_runner_orders import LOSING
from transports.sinks import FileSink, SinkError, SinkOptions, SinkRunner, SinkState, TargetUnavailable
from transports.sinks.sql import SqlSink

STATE = {"state": True}


def told(target):
    """The state that a target comes to."""
    found = {}
    for batch in target.taken:
        for change in batch.changes:
            if change.operation is Operation.REMOVE:
                found.pop(change.key, None)
            elif change.key is not None:
                found[change.key] = change.body["n"]
    return found


def rows_of(target):
    return [one.key for batch in target.taken for one in batch.changes if one.operation is Operation.READ]


def changes_of(target):
    return [one.key for batch in target.taken for one in batch.changes if one.operation is Operation.UPSERT]


def initial(path, target=None, **options):
    return rigged(path, target, **{"snapshot": "initial", "log": STATE, "batch_changes": 2, **options})


def test_rows_come_first_and_then_every_change_behind_them(tmp_path):
    """F88, F93: the state SNAPSHOT ends where the rows do, and the place of the slot is behind them then."""
    with initial(tmp_path) as rig:
        rig.commit(*range(5))
        rig.until(lambda: rig.runner.state is SinkState.SNAPSHOT)
        place = rig.log.slots.info("stock").position
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert sorted(rows_of(rig.target)) == ["0", "1", "2", "3", "4"]
        assert rig.log.slots.info("stock").position >= place
        rig.commit(5)
        rig.drained()
        assert changes_of(rig.target) == ["5"]
        rig.again()
        rig.commit(6)
        rig.drained()
        assert (len(rows_of(rig.target)), changes_of(rig.target)) == (5, ["5", "6"])


def test_what_is_committed_meanwhile_is_neither_lost_nor_overtaken(tmp_path):
    """F88: the target comes to the state of the log, whenever it is cut off."""
    with initial(tmp_path) as rig:
        rig.commit(*range(20))
        for number in range(100, 110):
            rig.commit(number, number % 5)
            for _ in range(3):
                rig.later(1.1)
                rig.runner.step()
            if number % 3 == 0:
                rig.died()
            if number % 4 == 0:
                rig.target.plan = [TargetUnavailable("down")]
        rig.until(lambda: rig.later(40.0) or rig.runner.state is SinkState.STREAMING)
        rig.commit("end")
        rig.drained()
        assert told(rig.target) == {row.key: row.key for row in _state(rig.log)}


def _state(log):
    return [
        one for one in log.changes(since="state", snapshot="initial_only") if one.operation is Operation.READ
    ]


def test_rows_go_on_behind_those_that_are_stored(tmp_path):
    """F89: a restart in the middle repeats what was not stored, and not all of it."""
    with initial(tmp_path) as rig:
        rig.commit(*range(40))
        rig.until(lambda: len(rows_of(rig.target)) >= 20)
        rig.stored()
        rig.again()
        before = len(rows_of(rig.target))
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert len(set(rows_of(rig.target))) == 40
        assert before < 40
        assert len(rows_of(rig.target)) <= 40 + rig.options["batch_changes"]


def test_a_snapshot_that_cannot_be_gone_on_with_begins_again(tmp_path, monkeypatch):
    """F89: it has taken too long, or the history behind it is gone."""
    with initial(tmp_path) as rig:
        rig.commit(*range(10))
        rig.until(lambda: rows_of(rig.target))
        rig.stored()
        rig.runner.close()
        rig.runner = rig.made()
        asked = []
        changes = ChangeLog.changes

        def gone_once(log, *wishes, since, **options):
            asked.append(since)
            if len(asked) == 1:
                raise SnapshotGone(Position(1), "0" * 16)
            return changes(log, *wishes, since=since, **options)

        monkeypatch.setattr(ChangeLog, "changes", gone_once)
        count = len(rows_of(rig.target))
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        rig.later(60.0)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert asked[0] != "state"
        assert asked[1] == "state"
        assert len(rows_of(rig.target)) == count + 10


def test_without_a_state_and_a_source_the_sink_is_paused_and_says_why(tmp_path):
    with initial(tmp_path, log={}) as rig:
        rig.commit(1)
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "state" in rig.runner.statistics().reason


def test_rows_are_given_again_while_changes_go_on(tmp_path):
    """F91: those that an operator asks for, by wish and key; then changes, each of them."""
    with rigged(tmp_path, log=STATE, criteria=Criterion(entity_types={"order"})) as rig:
        rig.commit(*range(6))
        rig.drained()
        rig.log.commit([upsert("bill", "b", {"n": "b"})])
        begun = rig.runner.refresh(Criterion(entity_types={"order"}), after="1", until="3")
        rig.runner.step()
        begun.result(0)
        rig.commit("x")
        rig.until(lambda: rig.runner.state is SinkState.SNAPSHOT)
        refused = rig.runner.refresh()
        rig.runner.step()
        with pytest.raises(SinkError, match="while it is STREAMING"):
            refused.result(0)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        rig.commit("y")
        rig.drained()
        assert rows_of(rig.target) == ["2", "3"]
        assert changes_of(rig.target) == ["0", "1", "2", "3", "4", "5", "x", "y"]


def test_a_source_of_rows_that_is_down_is_waited_for(tmp_path):
    """F125: before its first page and before a later one; its rows are sent whole, and what was committed meanwhile."""
    down, table = {None, "2"}, [str(n) for n in range(6)]

    def page(request):
        if request.after in down:
            raise ConnectionError("no route to the database")
        rest = [key for key in table if key > (request.after or "")]
        return [(key, {"n": key}) for key in rest[: request.limit]]

    source = PageSource(entity_type="order", pages=page, page_rows=3)
    with initial(tmp_path, source=source, log={}) as rig:
        for place in (None, "2"):
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            assert "no route to the database" in rig.runner.statistics().last_error
            table.append(f"8{len(table)}")
            rig.commit(table[-1])
            failures = rig.runner.counters.failures
            rig.later(60.0)
            rig.until(lambda failures=failures: rig.runner.counters.failures > failures)
            down.remove(place)
            rig.later(60.0)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert told(rig.target) == {key: key for key in ("0", "1", "2", "3", "4", "5", "86", "87")}


def test_rows_that_are_given_again_begin_anew_after_a_restart_and_end_with_a_seek(tmp_path):
    """F91."""
    with rigged(tmp_path, log=STATE, batch_changes=1) as rig:
        rig.commit(*range(4))
        rig.drained()
        rig.runner.refresh()
        rig.until(lambda: rows_of(rig.target))
        rig.died()
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert set(rows_of(rig.target)) == {"0", "1", "2", "3"}
        rig.runner.refresh()
        count = len(rows_of(rig.target))
        rig.until(lambda: len(rows_of(rig.target)) > count)
        rig.runner.seek("latest")
        rig.runner.step()
        rig.commit("z")
        rig.drained()
        assert rig.runner.state is SinkState.STREAMING
        assert changes_of(rig.target)[-1] == "z"


def test_rows_that_there_are_not_are_refused_and_harm_no_sink(tmp_path):
    """F91: before anything is noted, as it would be over restarts."""
    for options, wish, why in (
        ({}, {}, "keeps no state"),
        ({"log": STATE}, {"after": "1"}, "one entity type"),
    ):
        with rigged(tmp_path / str(len(options)), **options) as rig:
            rig.commit(1)
            rig.drained()
            refused = rig.runner.refresh(**wish)
            rig.runner.step()
            with pytest.raises(PenstockError, match=why):
                refused.result(0)
            rig.commit(2)
            rig.drained()
            assert (rig.runner.state, rig.target.keys) == (SinkState.STREAMING, ["1", "2"])


def test_rows_take_the_place_of_history_that_is_lost(tmp_path):
    """F88: with ``on_gap`` a sink heals itself by the state."""
    rows = [(str(n), {"n": str(n)}) for n in range(20)]
    source = PageSource(entity_type="order", pages=lambda asked: [] if asked.after else rows)
    with rigged(tmp_path, log=LOSING, snapshot="on_gap", source=source) as rig:
        rig.target.plan = [TargetUnavailable("down", retry_after=3000.0)]
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)

        def given():
            rig.log.commit([upsert("order", str(n), {"n": str(n), "text": "x" * 2000}) for n in range(20)])
            rig.later(1.1)
            rig.runner.step()
            return rig.runner.state is SinkState.SNAPSHOT

        wait_until(given)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        assert len(rows_of(rig.target)) == 20
        rig.commit("end")
        rig.drained()
        assert set(told(rig.target)) >= {"end", *map(str, range(20))}


def test_a_target_that_stores_its_place_gets_rows_too(tmp_path):
    """F35, F88: the rows of a database are those of the state, and changes go on behind them."""
    tables = SqlSink(f"sqlite:///{tmp_path}/out.db", create_tables=True)
    with initial(tmp_path / "log", tables) as rig:
        rig.commit(*range(7))
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        rig.commit(7)
        rig.drained()
        rig.again()
        rig.commit(8)
        rig.drained()
        found = connection_of(tables).exec_driver_sql('select key from "order" order by key').fetchall()
        assert [key for (key,) in found] == [str(number) for number in range(9)]


def only(path, target=None, **options):
    return initial(path, target, **{"snapshot": "initial_only", **options})


def completed(rig):
    rig.until(lambda: rig.later(1.1) or rig.runner.state is SinkState.COMPLETED)  # a state may be made yet


def test_rows_only_are_carried_and_then_nothing_over_restarts_too(tmp_path):
    """F88, F93: the sink is COMPLETED then, and no history is held for it."""
    with only(tmp_path) as rig:
        rig.commit(*range(5))
        rig.until(lambda: rig.runner.state is SinkState.SNAPSHOT)
        completed(rig)
        place = rig.log.head
        for _ in range(2):
            rig.commit("later")
            rig.later(60.0)
            rig.runner.step()
            told = rig.runner.statistics()
            assert (told.state, told.position, list(rig.log.slots)) == (SinkState.COMPLETED, place, [])
            assert told.reason == "all rows are sent, and the sink sends nothing else"
            assert rig.target.opened is False
            rig.again()
            completed(rig)
        assert (sorted(rows_of(rig.target)), changes_of(rig.target)) == (["0", "1", "2", "3", "4"], [])
        for order in (rig.runner.pause, rig.runner.resume, lambda: rig.runner.seek("earliest")):
            refused = order()
            rig.runner.step()
            with pytest.raises(SinkError, match="has sent its rows"):
                refused.result(0)


def test_rows_only_in_files_are_whole_files_each_time(tmp_path):
    """F101: nothing is to come behind the last row, for which its file would wait."""
    with only(tmp_path / "log", FileSink(tmp_path / "out")) as rig:
        rig.runner.step()
        completed(rig)
        assert list((tmp_path / "out").glob("changes-*")) == []  # there were no rows
        rig.commit(*range(3))
        for count in (1, 2):
            rig.runner.refresh()
            rig.runner.step()
            completed(rig)
            paths = sorted((tmp_path / "out").glob("changes-*"))
            assert [path.suffix for path in paths] == [".jsonl"] * count
            assert len(paths[-1].read_bytes().splitlines()) == 3


def test_rows_only_that_are_cut_off_go_on_where_they_were_stored(tmp_path):
    """F89: wherever a crash comes, the last one too: between the note and the slot."""
    with only(tmp_path) as rig:
        rig.commit(*range(40))
        rig.until(lambda: len(rows_of(rig.target)) >= 20)
        rig.stored()
        refused = rig.runner.seek("earliest")
        rig.runner.step()
        with pytest.raises(SinkError, match="sends rows only"):
            refused.result(0)
        rig.died()
        slots = type(rig.log.slots)
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, slots, "drop", OSError("gone"))
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        before = len(rows_of(rig.target))
        rig.again()
        completed(rig)
        assert (len(rows_of(rig.target)), list(rig.log.slots)) == (before, [])
        assert set(rows_of(rig.target)) == {str(number) for number in range(40)}
        assert before <= 40 + rig.options["batch_changes"]


def test_rows_only_are_carried_once_more_when_an_operator_wants_them(tmp_path):
    """F91: all, or some of them, as they are by now."""
    with only(tmp_path) as rig:
        rig.commit(*range(3))
        completed(rig)
        rig.commit(3)
        rig.runner.refresh(Criterion(entity_types={"order"}), after="1")
        rig.runner.step()
        assert rig.runner.state is not SinkState.COMPLETED
        completed(rig)
        assert rows_of(rig.target)[3:] == ["2", "3"]
        rig.runner.refresh()
        rig.runner.step()
        completed(rig)
        assert (sorted(rows_of(rig.target)[5:]), changes_of(rig.target)) == (["0", "1", "2", "3"], [])


def test_one_of_which_changes_are_wanted_by_now_goes_on_behind_its_rows(tmp_path):
    """F88: nothing between is left out."""
    with only(tmp_path) as rig:
        rig.commit(*range(3))
        completed(rig)
        rig.commit("x")
        rig.options["snapshot"] = "initial"
        rig.again()
        rig.commit("y")
        rig.drained()
        assert (len(rows_of(rig.target)), changes_of(rig.target)) == (3, ["x", "y"])


def test_one_of_which_rows_only_are_wanted_by_now_gives_them_and_ends(tmp_path):
    """F88."""
    with rigged(tmp_path, log=STATE) as rig:
        rig.commit("a")
        rig.drained()
        rig.options["snapshot"] = "initial_only"
        rig.again()
        completed(rig)
        assert (changes_of(rig.target), rows_of(rig.target)) == (["a"], ["a"])
        off = rig.runner.switch_off()
        rig.runner.step()
        off.result(0)
        rig.commit("b")
        rig.runner.switch_on()
        completed(rig)
        assert sorted(rows_of(rig.target)[1:]) == ["a", "b"]


def test_rows_only_of_history_that_is_lost_meanwhile_begin_anew(tmp_path):
    """F88: a sink of rows has no place that an operator could seek."""
    rows = [(str(n), {"n": str(n)}) for n in range(20)]
    source = PageSource(entity_type="order", pages=lambda asked: [] if asked.after else rows)
    with rigged(tmp_path, log=LOSING, snapshot="initial_only", source=source) as rig:
        rig.target.plan = [TargetUnavailable("down", retry_after=3000.0)]
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        lost = rig.runner.statistics().last_error

        def begun_anew():
            rig.log.commit([upsert("order", str(n), {"n": str(n), "text": "x" * 2000}) for n in range(20)])
            rig.later(1.1)
            rig.runner.step()
            return rig.runner.statistics().last_error != lost

        wait_until(begun_anew)
        completed(rig)
        assert set(rows_of(rig.target)) == {str(n) for n in range(20)}


def test_two_that_take_turns_carry_rows_once(tmp_path):
    """F121: the one that goes on looks what the other one has noted."""
    with only(tmp_path) as rig:
        other = rig.made()
        rig.commit(*range(3))
        completed(rig)
        rig.runner.close()
        rig.runner = other
        completed(rig)
        assert len(rows_of(rig.target)) == 3


def test_halves_of_rows_have_their_own_cursors(tmp_path):
    """F88: a batch that is too large goes on in the middle."""
    with initial(tmp_path, Target()) as rig:
        rig.commit(*range(8))
        rig.until(lambda: rig.target.taken)
        batch = rig.target.taken[0]
        front, rest = batch.halves()
        assert front.cursor != rest.cursor == batch.cursor
        assert isinstance(batch.next, Position)


def test_the_options_of_a_second_runner_are_the_same(tmp_path):
    """F88: the slot tells whether rows were given, whoever runs the sink."""
    with initial(tmp_path) as rig:
        rig.commit(1)
        rig.until(lambda: rig.runner.state is SinkState.STREAMING)
        rig.runner.close()
        rig.runner = SinkRunner(
            rig.log, "stock", rig.target, SinkOptions(snapshot="initial", linger=0.0), clock=HandClock()
        )
        rig.commit(2)
        rig.drained()
        assert rows_of(rig.target) == ["1"]
