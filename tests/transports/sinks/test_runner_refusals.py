"""What a target refuses, and how often a sink tries again."""

import json

import pytest

from publishers import Position
from tests.transports.sinks.targets import rigged
from tests.transports.sinks.test_runner import ORDERS
from transports.sinks import (
    DeadLetterFile,
    ItemResult,
    ItemVerdict,
    RetryPolicy,
    SinkState,
    TargetRefused,
    TargetUnavailable,
)


class TestRetries:
    """F96, F97: what may work later is tried again."""

    def test_the_waits_double_up_to_their_limit_and_end_when_it_works(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [TargetUnavailable(f"down {n}") for n in range(7)]
            rig.commit("a")
            waits = []
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            while rig.runner.state is SinkState.RETRYING:
                told = rig.runner.statistics()
                waits.append(told.retry_in)
                assert told.last_error == f"down {len(waits) - 1}"
                assert told.attempt == len(waits) + 1
                rig.later(told.retry_in - 0.001)
                tried = len(rig.target.tried)
                assert 0 < rig.runner.step() <= 0.001 + 1e-6
                assert len(rig.target.tried) == tried
                rig.later(0.0011)
                rig.runner.step()
            assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30])
            assert rig.target.keys == ["a"]
            assert [batch.attempt for batch in rig.target.tried] == [1, 2, 3, 4, 5, 6, 7, 8]
            told = rig.runner.statistics()
            assert (told.state, told.retry_in, told.attempt) == (SinkState.STREAMING, None, 0)
            assert told.counters.failures == 7

    def test_jitter_takes_from_each_wait_and_growth_may_be_linear(self):
        policy = RetryPolicy(jitter=lambda: 0.5)
        assert [policy.delay(n) for n in (1, 2, 3, 9)] == [0.5, 1.0, 2.0, 15.0]
        linear = RetryPolicy(growth="linear", first=2, jitter=lambda: 1.0)
        assert [linear.delay(n) for n in (1, 2, 3, 99)] == [2, 4, 6, 30]

    def test_a_target_may_ask_for_a_longer_wait_up_to_an_hour(self, tmp_path):
        policy = RetryPolicy(jitter=lambda: 1.0)
        assert policy.delay(1, 120.0) == 120.0
        assert policy.delay(1, 86400.0) == 3600.0
        assert policy.delay(5, 2.0) == 16.0
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [TargetUnavailable("busy", retry_after=120.0)]
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            assert rig.runner.statistics().retry_in == pytest.approx(120.0)

    def test_a_bound_of_attempts_pauses_the_sink_and_is_counted(self, tmp_path):
        policy = RetryPolicy(attempts=3, jitter=lambda: 0.0)
        with rigged(tmp_path / "log", criteria=ORDERS, retry=policy) as rig:
            rig.target.plan = [TargetUnavailable("down")] * 3
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            told = rig.runner.statistics()
            assert told.reason == "given up after 3 attempts: down"
            assert told.counters.given_up == 1
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]

    def test_after_some_failures_in_a_row_the_target_is_asked_before_it_gets_a_batch(self, tmp_path):
        policy = RetryPolicy(circuit=2, jitter=lambda: 0.0)
        with rigged(tmp_path / "log", criteria=ORDERS, retry=policy) as rig:
            rig.target.plan = [TargetUnavailable("down")] * 2
            rig.target.answers = False
            rig.commit("a")
            rig.until(lambda: rig.target.asked == 4)
            told = rig.runner.statistics()
            assert told.circuit_open
            assert told.last_error == "the target does not answer; the last attempt failed: down"
            assert len(rig.target.tried) == 2
            rig.target.answers = True
            rig.drained()
            assert rig.target.keys == ["a"]
            assert not rig.runner.statistics().circuit_open

    def test_what_the_operating_system_says_is_tried_again_and_so_is_opening(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, retry=RetryPolicy(jitter=lambda: 0.0)) as rig:
            rig.target.opening = [ConnectionRefusedError("no"), TargetUnavailable("not yet")]
            rig.target.plan = [OSError(28, "No space left on device")]
            rig.commit("a")
            rig.drained()
            assert rig.target.keys == ["a"]
            assert rig.runner.counters.failures == 3
            assert "No space left" in rig.runner.statistics().last_error


class TestRefusals:
    """Single changes of a batch may be refused."""

    def test_what_is_refused_for_good_pauses_the_sink_until_it_is_resumed(self, tmp_path, caplog):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [TargetRefused("no such table")]
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert rig.runner.statistics().reason == "no such table"
            assert "sink stock is paused: no such table" in caplog.text
            rig.later(100)
            rig.runner.step()
            assert len(rig.target.tried) == 1
            rig.runner.resume()
            rig.drained()
            assert rig.target.keys == ["a"]
            assert rig.runner.statistics().reason is None

    def test_what_a_sink_should_not_raise_pauses_it_too(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [ZeroDivisionError("oops")]
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert rig.runner.statistics().reason == "ZeroDivisionError: oops"

    def test_of_a_batch_that_is_refused_in_part_only_that_part_is_sent_again(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS) as rig:
            rig.target.plan = [
                [ItemResult(1, ItemVerdict.RETRY, "busy"), ItemResult(3, ItemVerdict.RETRY, "busy")],
                [ItemResult(0, ItemVerdict.REJECT, "bad date")],
            ]
            rig.commit(*"abcd")
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            assert rig.runner.statistics().last_error == "<Change 1:2 UPSERT order b>: busy (and 1 more)"
            rig.later(2)
            rig.until(lambda: rig.runner.state is SinkState.PAUSED)
            assert rig.runner.statistics().reason == "<Change 1:2 UPSERT order b>: bad date"
            assert rig.stored() == Position(1, 0)
            rig.runner.resume()
            rig.drained()
            assert [[change.key for change in batch.changes] for batch in rig.target.tried] == [
                list("abcd"),
                list("bd"),
                list("b"),
            ]
            assert sorted(rig.target.keys) == list("abcd")
            assert rig.stored() == Position(2, 0)

    def test_the_user_may_have_poison_left_out_which_is_counted(self, tmp_path):
        with rigged(tmp_path / "log", criteria=ORDERS, on_reject="drop") as rig:
            rig.target.plan = [[ItemResult(1, ItemVerdict.REJECT, "bad date")]]
            rig.commit(*"abc")
            rig.drained()
            assert rig.target.keys == ["a", "c"]
            counted = rig.runner.counters
            assert (counted.rejected, counted.dropped, counted.dead_letters) == (1, 1, 0)
            assert (counted.changes, counted.batches) == (2, 1)

    def test_dead_letters_are_kept_before_they_are_left_out(self, tmp_path):
        letters = DeadLetterFile(tmp_path / "dead.jsonl")
        with rigged(tmp_path / "log", criteria=ORDERS, on_reject="dead_letter", dead_letters=letters) as rig:
            rig.target.plan = [
                [ItemResult(1, ItemVerdict.REJECT, "bad date")],
                [ItemResult(0, ItemVerdict.REJECT, "no")],
            ]
            rig.commit(*"abc")
            rig.commit("d")
            rig.drained()
            lines = [json.loads(line) for line in letters.path.read_text().splitlines()]
            assert [line["change"]["key"] for line in lines][:1] == ["b"]
            assert lines[0]["error"] == "bad date"
            assert lines[0]["sink"] == "stock"
            assert lines[0]["change"]["body"] == {"n": "b"}
            assert rig.runner.counters.dead_letters == len(lines)

    def test_dead_letters_that_cannot_be_kept_are_tried_again(self, tmp_path):
        class Full:
            broken = True

            def keep(self, context, change, error):
                if self.broken:
                    raise OSError(28, "No space left on device")

        letters = Full()
        options = {"on_reject": "dead_letter", "dead_letters": letters, "criteria": ORDERS}
        with rigged(tmp_path / "log", **options) as rig:
            rig.target.plan = [[ItemResult(0, ItemVerdict.REJECT, "bad date")]] * 2
            rig.commit("a")
            rig.until(lambda: rig.runner.state is SinkState.RETRYING)
            assert rig.stored() == Position(1, 0)
            letters.broken = False
            rig.later(60)
            rig.drained()
            assert rig.stored() == Position(2, 0)
