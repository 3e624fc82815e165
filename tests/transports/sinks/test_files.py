"""Changes as lines: in files, which are rotated, and on streams."""

import io
import json
import os

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import Criterion, Position, upsert
from tests.transports.sinks.targets import rigged
from transports.sinks import FileSink, SinkState, StreamSink, file

ORDERS = Criterion(entity_types={"order"})


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


class FullDisk:
    """The operating system, on whose disk there is room for some bytes only."""

    def __init__(self, room):
        self._room = [room]

    def __getattr__(self, name):
        return getattr(os, name)

    def pwrite(self, number, data, offset):
        if not self._room:
            raise OSError(28, "No space left on device")
        return os.pwrite(number, data[: self._room.pop()], offset)


def written(folder):
    """The keys of all lines, in the order of the files' names."""
    told = (line for path in sorted(folder.glob("*.jsonl*")) for line in lines(path))
    return [line["key"] for line in told if "gap" not in line]


def test_lines_are_the_changes_as_other_transports_tell_them(tmp_path):
    """F101."""
    stream = io.BytesIO()
    with rigged(tmp_path / "log", StreamSink(stream)) as rig:
        rig.commit("a", "b")
        rig.drained()
        told = [json.loads(line) for line in stream.getvalue().splitlines()]
        assert [(one["operation"], one.get("key"), one.get("body")) for one in told] == [
            ("TRANSACTION", None, told[0]["body"]),
            ("UPSERT", "a", {"n": "a"}),
            ("UPSERT", "b", {"n": "b"}),
        ]
        assert rig.log.position_of(told[1]["cursor"]) == Position(1, 2)
        assert rig.stored() == Position(2, 0)


def test_a_batch_has_left_the_process_when_it_counts_as_carried(tmp_path):
    """F101: standard output to a pipe is buffered, and what is in a buffer dies with the process."""
    out = io.BytesIO()
    with rigged(tmp_path / "log", StreamSink(io.BufferedWriter(out, 1 << 20)), criteria=ORDERS) as rig:
        rig.commit("a", "b")
        rig.drained()
        assert [json.loads(line)["key"] for line in out.getvalue().splitlines()] == ["a", "b"]


class WatchedSystem:
    """The operating system, which notes what is written and synced."""

    def __init__(self, events):
        self._events = events

    def __getattr__(self, name):
        return getattr(os, name)

    def pwrite(self, number, data, offset):
        self._events.append("written")
        return os.pwrite(number, data, offset)

    def fsync(self, number):
        self._events.append("synced")
        os.fsync(number)


def test_no_place_is_durable_before_the_lines_in_front_of_it(tmp_path, monkeypatch):
    """F101, F35: while a file is written, and when it is complete."""
    events = []
    monkeypatch.setattr(file, "os", WatchedSystem(events))
    replace = file.replace_file
    monkeypatch.setattr(file, "replace_file", lambda *given: (events.append("placed"), replace(*given)))
    with rigged(tmp_path / "log", FileSink(tmp_path / "out", max_bytes=400), criteria=ORDERS) as rig:
        for key in "abcdef":
            rig.commit(key)
            rig.drained()
            rig.stored()
    assert events.count("placed") >= 6
    unsynced = False
    for event in events:
        unsynced = {"written": True, "synced": False}.get(event, unsynced)
        assert event != "placed" or not unsynced, events


def test_a_stream_that_nobody_reads_any_more_pauses_the_sink(tmp_path):
    out, into = os.pipe()
    os.close(out)
    with open(into, "wb", buffering=0) as stream, rigged(tmp_path / "log", StreamSink(stream)) as rig:
        rig.commit("a")
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "the reader of the stream has gone" in rig.runner.statistics().reason
        assert rig.target.alive()
    assert not rig.target.alive()


def test_a_file_is_complete_when_it_is_large_enough_and_a_transaction_ends(tmp_path):
    """F101: whole files have lasting names, and a transaction is never split over two."""
    folder = tmp_path / "out"
    sink = FileSink(folder, "orders", max_bytes=600, max_age=None)
    with rigged(tmp_path / "log", sink, criteria=ORDERS, batch_changes=2) as rig:
        rig.commit(*"abcde")
        rig.drained()
        rig.commit("f")
        rig.drained()
        whole = sorted(path.name for path in folder.glob("*.jsonl"))
        assert whole == ["orders-00000000000000000001-000001.jsonl"]
        assert [line["key"] for line in lines(folder / whole[0])] == list("abcde")
        assert rig.stored() == Position(3, 0)
        assert written(folder) == list("abcdef")
        kept = json.loads(sink.place_path.read_bytes())
        assert rig.log.position_of(kept["place"]) == Position(3, 0)
        assert kept["file"] == "orders-00000000000000000002-000001.jsonl"


def test_a_file_is_complete_when_it_is_old_enough_also_if_nothing_more_comes(tmp_path):
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder, max_age=60.0), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        rig.later(59.0)
        rig.runner.step()
        assert list(folder.glob("*.jsonl")) == []
        rig.later(2.0)
        rig.runner.step()
        assert [path.name for path in folder.glob("changes-*")] == [
            "changes-00000000000000000001-000001.jsonl"
        ]
        rig.commit("b")
        rig.drained()
        assert written(folder) == ["a", "b"]


def test_a_crash_repeats_no_line_and_loses_none(tmp_path):
    """F101: what lies behind the place is cut away."""
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        rig.stored()
        rig.commit("b")
        rig.drained()
        assert written(folder) == ["a", "b"]
        rig.died()  # before the place behind b was stored
        rig.commit("c")
        rig.drained()
        assert written(folder) == ["a", "b", "c"]


def test_a_crash_before_the_first_place_begins_anew(tmp_path):
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        rig.died()
        rig.drained()
        assert written(folder) == ["a"]


@pytest.mark.parametrize("renamed", [False, True])
def test_a_crash_while_a_file_gets_its_name_is_made_good(tmp_path, renamed):
    folder = tmp_path / "out"
    sink = FileSink(folder, max_bytes=1)
    with rigged(tmp_path / "log", sink, criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        (path,) = folder.glob("*.jsonl")
        rig.died()
        if not renamed:
            path.rename(f"{path}.tmp")
        rig.commit("b")
        rig.drained()
        assert [line["key"] for line in lines(path)] == ["a"]
        assert written(folder) == ["a", "b"]
        assert list(folder.glob("*.tmp")) == []


def test_a_write_that_failed_half_way_leaves_nothing_behind(tmp_path, monkeypatch):
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        disk = FullDisk(20)
        monkeypatch.setattr("transports.sinks.file.os", disk)
        rig.commit("b")
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        monkeypatch.undo()
        rig.later(10)
        rig.drained()
        assert written(folder) == ["a", "b"]


def test_a_sink_that_is_moved_back_writes_files_of_other_names(tmp_path):
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder, max_bytes=1), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        for _ in range(2):
            rig.runner.seek(1)
            rig.runner.step()
            rig.drained()
        rig.again()
        rig.commit("b")
        rig.drained()
        assert sorted(path.name[27:] for path in folder.glob("*.jsonl")) == [
            "1-000001-2.jsonl",
            "1-000001-3.jsonl",
            "1-000001.jsonl",
            "2-000001.jsonl",
        ]


def test_a_file_that_is_being_written_goes_on_after_a_seek(tmp_path):
    folder = tmp_path / "out"
    with rigged(tmp_path / "log", FileSink(folder), criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        rig.runner.seek(1)
        rig.runner.step()
        rig.died()
        rig.drained()
        assert written(folder) == ["a", "a"]


@pytest.mark.parametrize("damage", ["missing", "short", "sidecar"])
def test_damage_pauses_the_sink_and_says_what_to_do(tmp_path, damage):
    folder = tmp_path / "out"
    sink = FileSink(folder)
    with rigged(tmp_path / "log", sink, criteria=ORDERS) as rig:
        rig.commit("a")
        rig.drained()
        rig.runner.close()
        (path,) = folder.glob("*.tmp")
        if damage == "missing":
            path.unlink()
        elif damage == "short":
            os.truncate(path, 3)
        else:
            sink.place_path.write_bytes(b"{")
        rig.runner = rig.made()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        reason = rig.runner.statistics().reason
        assert {"missing": "is missing", "short": "3 bytes long", "sidecar": "is damaged"}[damage] in reason
        sink.place_path.unlink()
        rig.runner.resume()
        rig.commit("b")
        rig.drained()
        assert written(folder)[-1:] == ["b"]
    assert sink.alive()


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "../x"}, {"name": "-x"}, {"name": 7}, {"max_bytes": 0}, {"max_age": 0.5}],
)
def test_arguments_are_checked(tmp_path, wrong):
    with pytest.raises(InvalidOption):
        FileSink(tmp_path, **wrong)


def test_what_is_left_out_by_its_annotations_is_in_no_file_and_the_place_is_behind_it(tmp_path):
    """F164: a migration spares the target, and holds no history."""
    wanted = Criterion(entity_types={"order"}, annotations="backfill not exists")
    with rigged(tmp_path / "log", FileSink(tmp_path / "out"), criteria=wanted) as rig:
        rig.commit("a")
        for key in "bcd":
            rig.log.commit([upsert("order", key, {})], meta={"backfill": True})
        rig.until(lambda: rig.stored() == rig.log.head)
        rig.commit("e")
        rig.drained()
        (path,) = (tmp_path / "out").glob("*.jsonl.tmp")
        assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["a", "e"]
