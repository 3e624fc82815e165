"""The runner of a sink: batches, retries, refusals and places, with a clock that the tests move."""

import msgspec
import pytest

from penstock_cdc.errors import InvalidOption
from publishers import ChangeLog, Criterion, Images, Position, upsert
from tests.harness.inside import intake_of
from tests.publishers.support import wait_until
from tests.transports.sinks.targets import QUICK, Target, rigged
from transports.sinks import (
    DeadLetterFile,
    RetryPolicy,
    SinkOptions,
    SinkRunner,
    SinkState,
    TargetRefused,
    TargetUnavailable,
    TooLargeForTarget,
)

ORDERS = Criterion(entity_types={"order"})


def sizes(target):
    return [len(batch) for batch in target.taken]


class TestBatches:
    """F95: how large a batch is, and how long one waits to be filled."""

    def test_a_batch_is_whole_transactions_up_to_its_bound(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_changes=5) as rig:
            for keys in ("ab", "cd", "ef", "g"):
                rig.commit(*keys)
            rig.drained()
            assert sizes(rig.target) == [4, 3]
            assert rig.target.keys == list("abcdefg")
            assert all(batch.boundary for batch in rig.target.taken)

    def test_a_batch_that_is_not_full_waits_for_the_time_given_and_no_longer(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, linger=0.2) as rig:
            rig.commit("a")
            rig.until(
                lambda: (
                    intake_of(rig.runner.machine).supply is not None
                    and not intake_of(rig.runner.machine).supply.empty
                )
            )
            assert rig.runner.step() == pytest.approx(0.2)
            rig.commit("b")
            rig.later(0.19)
            assert rig.runner.step() == pytest.approx(0.01)
            assert rig.target.taken == []
            rig.later(0.02)
            rig.drained()
            assert sizes(rig.target) == [2]

    def test_a_full_batch_waits_for_nothing(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, linger=60.0, batch_changes=2) as rig:
            rig.commit("a", "b")
            rig.drained()
            assert sizes(rig.target) == [2]

    def test_bytes_bound_a_batch_too(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_bytes=1000) as rig:
            for key in "abcd":
                rig.log.commit([upsert("order", key, {"text": "x" * 300})])
            rig.log.commit([upsert("order", "large", {"text": "x" * 5000})])
            rig.drained()
            assert sizes(rig.target) == [2, 2, 1]

    @pytest.mark.parametrize("rows", [7, 8, 9])
    def test_a_transaction_above_the_bound_is_split_and_its_last_part_says_so(self, tmp_path, rows):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_changes=4) as rig:
            rig.commit("a")
            rig.commit(*range(rows))
            rig.commit("z")
            rig.drained()
            assert rig.target.keys == ["a", *map(str, range(rows)), "z"]
            assert max(sizes(rig.target)) <= 4
            inside = [batch for batch in rig.target.taken if batch.changes[-1].version == 2]
            assert [batch.boundary for batch in inside if batch.changes[0].version == 2][:1] == [False]
            ends = {batch.next for batch in rig.target.taken if batch.boundary}
            assert all(place.index == 0 for place in ends)

    def test_a_part_of_a_transaction_by_bytes_has_at_least_one_change(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_bytes=100) as rig:
            rig.commit("a", "b", "c")
            rig.drained()
            assert sizes(rig.target) == [1, 1, 1]
            assert [batch.boundary for batch in rig.target.taken] == [False, False, True]

    def test_what_is_too_large_for_the_target_is_halved(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [TooLargeForTarget("too large"), TooLargeForTarget("too large"), None]
            rig.commit(*"abcde")
            rig.drained()
            assert sizes(rig.target) == [1, 1, 3]
            assert rig.target.keys == list("abcde")
            assert [batch.boundary for batch in rig.target.taken] == [False, False, True]

    def test_a_single_change_that_is_too_large_is_poison(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, on_reject="drop") as rig:
            rig.target.plan = [TooLargeForTarget("too large")] * 2
            rig.commit("a", "b")
            rig.drained()
            assert rig.target.keys == ["b"]
            assert rig.runner.counters.dropped == 1

    def test_a_target_that_has_too_much_to_do_gets_smaller_batches_which_grow_again(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_changes=20) as rig:
            rig.target.plan = [TargetUnavailable("busy", overloaded=True)] * 2
            for number in range(30):
                rig.commit(number)
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            for _ in range(2):
                rig.later(31)
                rig.runner.step()
            rig.drained()
            assert sizes(rig.target) == [
                20,
                6,
                4,
            ]  # 20 halved twice, and a tenth, at least one, more each time
            assert rig.target.keys == [str(number) for number in range(30)]


class TestTransform:
    """F60: a function for each sink."""

    def test_it_changes_and_leaves_out_but_moves_nothing(self, tmp_path):
        def shout(change):
            if change.key == "b":
                return None
            return msgspec.structs.replace(change, body_bytes=b'{"loud":true}')

        with rigged(tmp_path / "log", criteria=ORDERS, transform=shout) as rig:
            rig.commit("a", "b")
            rig.commit("b")
            rig.drained()
            assert [(change.key, change.body) for change in rig.target.taken[0].changes] == [
                ("a", {"loud": True})
            ]
            assert rig.stored() == Position(3, 0)

    @pytest.mark.parametrize("made", [7, Position(1, 1)])
    def test_what_it_must_not_do_pauses_the_sink_and_is_tried_again(self, tmp_path, made):
        wrong = [made]
        with rigged(
            tmp_path / "log", criteria=ORDERS, transform=lambda change: wrong[0] if wrong else change
        ) as rig:
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert "the transform failed" in rig.runner.statistics().reason
            assert rig.stored() == Position(1, 0)
            wrong.clear()
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]

    def test_it_may_fail_for_a_change_that_is_left_out_then(self, tmp_path):
        def fragile(change):
            return 1 / 0 if change.key == "b" else change

        with rigged(tmp_path / "log", criteria=ORDERS, transform=fragile, on_reject="drop") as rig:
            rig.commit("a", "b", "c")
            rig.drained()
            assert rig.target.keys == ["a", "c"]
            assert rig.runner.counters.dropped == 1


class TestPlaces:
    """F108: a place of its own, stored after the target has confirmed."""

    def test_it_is_stored_after_the_target_has_confirmed_and_each_second(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.commit("a")
            rig.drained()
            assert rig.log.slots.info("stock").position == Position(1, 0)
            rig.target.flushing = [TargetUnavailable("not durable")]
            rig.later(1.5)
            rig.runner.step()
            assert rig.log.slots.info("stock").position == Position(1, 0)
            assert rig.runner.state is SinkState.RETRYING
            rig.later(60)
            rig.drained()
            assert rig.target.keys == ["a", "a"]  # what was not durable was given again
            assert rig.stored() == Position(2, 0)

    def test_what_was_confirmed_and_not_stored_comes_again_after_a_crash(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.commit("a")
            rig.drained()
            rig.died()
            rig.drained()
            assert rig.target.keys == ["a", "a"]
            rig.again()
            rig.commit("b")
            rig.drained()
            assert rig.target.keys == ["a", "a", "b"]

    def test_it_moves_over_what_does_not_match(self, tmp_path):
        with rigged(tmp_path / "log", criteria=Criterion(entity_types={"bill"})) as rig:
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.STREAMING)
            rig.until(lambda: rig.stored() == Position(2, 0))
            assert rig.target.tried == []

    def test_it_may_stand_inside_a_transaction(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, batch_changes=2) as rig:
            rig.commit("a", "b", "c")
            rig.target.plan = [None, TargetRefused("no")]
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert rig.stored() == Position(1, 3)

    def test_the_place_that_the_target_stores_wins(self, tmp_path):
        with rigged(tmp_path / "log", Target(stores=True), criteria=ORDERS) as rig:
            for key in "abc":
                rig.commit(key)
            rig.target.place = Position(3, 0)
            rig.drained()
            assert rig.target.keys == ["c"]
            rig.again()
            rig.target.place = Position(2, 0)  # it was restored
            rig.drained()
            assert rig.target.keys == ["c", "b", "c"]

    def test_a_target_that_stores_a_place_is_told_of_what_does_not_match_and_of_moves(self, tmp_path):
        with rigged(tmp_path / "log", Target(stores=True), criteria=Criterion(entity_types={"bill"})) as rig:
            rig.commit("a")
            rig.until(lambda: rig.stored() == Position(2, 0))
            assert rig.target.moves == [Position(2, 0)]
            moved = rig.runner.seek("earliest")
            rig.runner.step()
            assert moved.result() == Position(1, 0)
            assert rig.target.moves == [Position(2, 0), Position(1, 0)]

    def test_a_place_that_the_log_does_not_have_pauses_the_sink(self, tmp_path):
        with rigged(tmp_path / "log", Target(stores=True), criteria=ORDERS) as rig:
            rig.target.place = Position(9, 0)
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert "9:0" in rig.runner.statistics().reason or "1:0" in rig.runner.statistics().reason


def test_several_sinks_each_go_at_their_own_pace_while_one_is_down(tmp_path):
    """F108."""
    with rigged(tmp_path / "log", criteria=ORDERS) as rig:
        down, good = Target(), Target()
        down.plan = [TargetUnavailable("down")] * 1000
        options = SinkOptions(criteria=ORDERS, since="earliest", linger=0.0)
        with (
            SinkRunner(rig.log, "down", down, options) as first,
            SinkRunner(rig.log, "good", good, options) as second,
        ):
            for key in "abc":
                rig.commit(key)
            wait_until(lambda: good.keys == list("abc"), second.statistics)
            wait_until(lambda: first.state is SinkState.RETRYING, first.statistics)
            assert second.state is SinkState.STREAMING
        assert rig.log.slots.info("good").position == Position(4, 0)
        assert rig.log.slots.info("down").position == Position(1, 0)


def test_a_thread_carries_pauses_and_goes_on(tmp_path):
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        target = Target()
        options = SinkOptions(criteria=ORDERS, linger=0.0)
        with SinkRunner(log, "stock", target, options) as runner:
            wait_until(lambda: runner.state is SinkState.STREAMING, runner.statistics)
            assert runner.start() is runner
            log.commit([upsert("order", "a", {})])
            wait_until(lambda: target.keys == ["a"], runner.statistics)
            runner.pause().result(60)
            assert runner.statistics().state is SinkState.PAUSED
            log.commit([upsert("order", "b", {})])
            assert runner.seek(1).result(60) == Position(1, 0)
            runner.resume().result(60)
            wait_until(lambda: target.keys == ["a", "a", "b"], runner.statistics)
            assert repr(runner) == "<SinkRunner 'stock' STREAMING>"
        assert runner.state is SinkState.STOPPED
        assert log.slots.info("stock").position == Position(3, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_changes", 0),
        ("batch_bytes", 0),
        ("linger", -1),
        ("linger", True),
        ("store_every", 0.01),
        ("store_every", False),
        ("on_reject", "ignore"),
        ("on_reject", "dead_letter"),
        ("dead_letters", DeadLetterFile("x")),
    ],
)
def test_options_are_checked(name, value):
    with pytest.raises(InvalidOption):
        SinkOptions(**{name: value})


@pytest.mark.parametrize(
    "wrong", [{"first": 0}, {"limit": 0.5}, {"growth": "cubic"}, {"attempts": 0}, {"circuit": 0}]
)
def test_policies_are_checked(wrong):
    with pytest.raises(InvalidOption):
        RetryPolicy(**wrong)


def test_a_sink_that_needs_certain_images_gets_them(tmp_path):
    target = Target()
    target.images = Images.AFTER
    with rigged(tmp_path / "log", target, criteria=ORDERS) as rig:
        rig.log.commit([upsert("order", "a", {"n": 1}, before={"n": 0})])
        rig.drained()
        (change,) = target.taken[0].changes
        assert (change.body, change.before) == ({"n": 1}, None)


def test_the_name_of_a_sink_is_that_of_a_slot(tmp_path):
    with ChangeLog.open(tmp_path / "log", **QUICK) as log, pytest.raises(InvalidOption):
        SinkRunner(log, "No Slot", Target())


def test_a_new_sink_begins_where_the_log_was_when_it_was_added(tmp_path):
    """F119: its first step, on a thread of its own, may come after the next commits."""
    with ChangeLog.open(tmp_path / "log", **QUICK) as log:
        log.commit([upsert("order", "before", {})])
        target = Target()
        runner = SinkRunner(log, "stock", target, SinkOptions(linger=0.0))
        log.commit([upsert("order", "behind", {})])
        with runner:
            wait_until(lambda: target.keys == ["behind"], lambda: target.keys)
