"""Transactions that other processes seal, and that the owner commits without looking into them."""

import logging
import pickle
import signal
import textwrap

import pytest

from penstock_cdc.errors import InvalidChange, TransactionTooLarge
from penstock_cdc.mutations import schema
from publishers import ChangeLog, Content, upsert
from publishers.log.staging import Staged
from publishers.mutations.mutation import columns_of
from tests.harness.constants import set_bounds


def rows(*keys):
    return [columns_of([upsert("n", key, {"key": key}) for key in keys])]


def staged_files(path):
    return sorted(file.name for file in path.glob("staged-*"))


def stored(log):
    found = log.history(None, limit=1_000, content=Content.BODY).changes
    return [
        (c.version, c.index, c.count, c.key, c.body, c.schema_version) for c in found if c.key is not None
    ]


def test_parts_become_one_version_in_the_order_in_which_they_are_given(tmp_path):
    with ChangeLog.open(tmp_path / "log", frame_bytes=1024, compress=True) as log:
        many = [f"{number:030}" for number in range(100)]

        def stage(staging):
            staging = pickle.loads(pickle.dumps(staging))
            last, nothing = staging.seal(rows("z"), "1-0", {}), staging.seal([], "2-0", {})
            first = staging.seal([*rows(*many), *rows("y")], "0-0", {})
            assert (first.changes, nothing.changes, len(staged_files(log.path))) == (101, 0, 2)
            assert len(first.payloads) > 2
            return Staged([first, nothing, last], {})

        commit = log.serving.commit_staged(stage, meta={"by": "executors"}, producer=("etl", 3))
        assert (commit.version, commit.changes, commit.duplicate) == (1, 103, False)
        keys = [*many, "y", "z"]
        assert stored(log) == [(1, place, 103, key, {"key": key}, None) for place, key in enumerate(keys, 1)]
        (told,) = (c for c in log.history(None, limit=1, content=Content.BODY).changes)
        assert told.meta == {"by": "executors"}
        assert log.produced("etl").sequence == 3
        assert staged_files(log.path) == []
    with ChangeLog.open(tmp_path / "log", read_only=True) as log:
        assert [one[3] for one in stored(log)] == keys


def test_a_subscriber_gets_what_was_staged(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        log.serving.commit_staged(lambda staging: Staged([staging.seal(rows("a", "b"), "0-0", {})], {}))
        feed = log.changes(since="earliest", until=1, content=Content.BODY)
        assert [(change.key, change.body) for change in feed if change.key] == [
            ("a", {"key": "a"}),
            ("b", {"key": "b"}),
        ]


def test_attempts_that_do_not_count_are_removed_and_what_comes_later_at_the_next_commit(tmp_path, caplog):
    with ChangeLog.open(tmp_path / "log") as log:
        late = []

        def stage(staging):
            staging.seal(rows("lost"), "0-0", {})
            late.append(staging)
            return Staged([staging.seal(rows("kept"), "0-1", {})], {})

        def inside(staging):
            # While another one is staged, what belongs to that stays.
            staging.seal(rows("unused"), "7-0", {})
            assert log.serving.commit_staged(stage).version == 1
            assert len(staged_files(log.path)) == 1
            late[0].seal(
                rows("late"), "0-2", {}
            )  # of an attempt that did not hear that its transaction was over
            return Staged([staging.seal(rows("outer"), "0-0", {})], {})

        assert log.serving.commit_staged(inside).version == 2
        assert len(staged_files(log.path)) == 1
        abandoned = []

        def nothing(staging):
            abandoned.append(staging.abandoned)
            return Staged([staging.seal([], "0-0", {})], {})

        with caplog.at_level(logging.WARNING, "penstock.housekeeping"):
            commit = log.serving.commit_staged(nothing)
        assert (commit.version, commit.changes, abandoned) == (0, 0, [1])
        assert "1 staged files of ended transactions were removed" in caplog.text
        assert staged_files(log.path) == []
        assert [one[3] for one in stored(log)] == ["kept", "outer"]
        assert log.head.version == 3


def test_what_was_staged_when_a_process_was_killed_is_removed_by_the_next_opening(tmp_path, caplog, script):
    program = textwrap.dedent(
        """
        import os, signal, sys
        from publishers import ChangeLog, upsert
        from publishers.mutations.mutation import columns_of
        def stage(staging):
            for part in range(3):
                staging.seal([columns_of([upsert("n", str(part), {})])], str(part), {})
            os.kill(os.getpid(), signal.SIGKILL)
        ChangeLog.open(sys.argv[1]).serving.commit_staged(stage)
        """
    )
    with script(program, tmp_path / "log") as process:
        assert process.wait() == -signal.SIGKILL
    assert len(staged_files(tmp_path / "log")) == 3
    with (
        caplog.at_level(logging.WARNING, "penstock.housekeeping"),
        ChangeLog.open(tmp_path / "log") as log,
    ):
        assert log.head.version == 1
        assert staged_files(log.path) == []
    assert "3 staged files of a batch that was never committed were removed" in caplog.text


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_a_part_that_is_not_what_was_sealed_is_refused_and_the_log_goes_on(tmp_path, damage):
    with ChangeLog.open(tmp_path / "log") as log:

        def stage(staging):
            good, bad = staging.seal(rows("a"), "0-0", {}), staging.seal(rows("b"), "1-0", {})
            path = log.path / bad.file
            if damage == "missing":
                path.unlink()
            else:
                data = path.read_bytes()
                path.write_bytes(data[:-1] if damage == "cut" else b"?" + data[1:])
            return Staged([good, bad], {})

        with pytest.raises(OSError, match=r"does not hold what was staged|No such file"):
            log.serving.commit_staged(stage)
        assert staged_files(log.path) == []
        assert log.commit([upsert("n", "c", {})]).version == 1


def test_a_repetition_writes_nothing(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:

        def stage(staging):
            return Staged([staging.seal(rows("a"), "0-0", {})], {})

        assert log.serving.commit_staged(stage, producer=("etl", 1)).duplicate is False
        assert log.serving.commit_staged(stage, producer=("etl", 1)).duplicate is True
        assert len(stored(log)) == 1
        assert staged_files(log.path) == []


def test_bounds_of_a_transaction_hold_for_all_parts_together(tmp_path):
    set_bounds(max_transaction_changes=3)
    with ChangeLog.open(tmp_path / "log") as log:

        def stage(staging):
            return Staged([staging.seal(rows("a", "b"), str(part), {}) for part in range(2)], {})

        with pytest.raises(TransactionTooLarge, match="max_transaction_changes"):
            log.serving.commit_staged(stage)
        with pytest.raises(TransactionTooLarge, match="max_transaction_changes"):
            log.serving.commit_staged(lambda staging: Staged([staging.seal(rows(*"abcd"), "0", {})], {}))
        assert staged_files(log.path) == []


def test_changes_are_stamped_with_schemas_that_are_told_by_then_and_with_the_origin_of_the_log(tmp_path):
    with ChangeLog.open(tmp_path / "log", origin="north") as log:

        def stage(staging):
            parts = [staging.seal(rows("a"), "0", {"n": 1, "other": 4})]
            log.commit([schema("n", {"fields": []})])
            return Staged(parts, {"n": 1})

        assert log.serving.commit_staged(stage).version == 2
        assert stored(log)[1:] == [(2, 1, 2, "a", {"key": "a"}, 1)]
        (change,) = log.history(None, since=2, limit=10, content=Content.BODY).changes[1:]
        assert change.origin == "north"
        with pytest.raises(InvalidChange, match="told before the changes of 'n' are committed"):
            log.serving.commit_staged(
                lambda staging: Staged([staging.seal(rows("a"), "0", {"n": 2})], {"n": 2})
            )
        assert staged_files(log.path) == []


def test_a_schema_that_is_forgotten_while_changes_are_staged_is_not_committed_with(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:

        def stage(staging):
            log.commit([schema("n", {"fields": []})], visible=False)
            parts = [staging.seal(rows("a"), "0", {"n": 1})]
            log.forget_after(0)
            log.commit([schema("n", {"fields": [{"name": "x"}]})])
            return Staged(parts, {"n": 1})

        with pytest.raises(InvalidChange, match="schemas were forgotten"):
            log.serving.commit_staged(stage)


def test_a_tracer_stands_around_a_staged_commit(tmp_path):
    seen = []

    def tracer(log, write, changes, /, **committing):
        seen.append((log, list(changes), committing["meta"]))
        return write(changes, **committing | {"meta": {"trace": 1}})

    with ChangeLog.open(tmp_path / "log", tracer=tracer) as log:
        log.serving.commit_staged(
            lambda staging: Staged([staging.seal(rows("a"), "0", {})], {}), meta={"a": 1}
        )
        assert seen == [(log.name, [], {"a": 1})]
        assert log.history(None, limit=1, content=Content.BODY).changes[0].meta == {"trace": 1}
