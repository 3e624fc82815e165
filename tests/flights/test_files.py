import json

import pytest

from penstock_flights.files import read_json, replace_json, sole_user
from tests.harness.failing import failing


def test_a_replaced_file_holds_the_new_value_and_leaves_no_draft(tmp_path):
    path = tmp_path / "place.json"
    replace_json(path, {"count": 1})
    replace_json(path, {"count": 2})
    assert read_json(path) == {"count": 2}
    assert [file.name for file in tmp_path.iterdir()] == ["place.json"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "place.json"
    replace_json(path, 1)

    failing(monkeypatch, "penstock_flights.files.os.fsync", OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        replace_json(path, 2)
    assert read_json(path) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["place.json"]


@pytest.mark.parametrize("content", [None, b"", b'{"count": 1', b"\x00\x00\xff"])
def test_a_file_that_cannot_be_read_is_none(tmp_path, content):
    path = tmp_path / "place.json"
    if content is not None:
        path.write_bytes(content)
    assert read_json(path) is None


def test_json_stays_readable(tmp_path):
    path = tmp_path / "place.json"
    replace_json(path, {"a": [1, 2]})
    assert json.loads(path.read_text()) == {"a": [1, 2]}


def test_a_directory_has_one_demo_at_a_time(tmp_path):
    directory = tmp_path / "var" / "demo"
    with (
        sole_user(directory),
        pytest.raises(BlockingIOError, match="another demo runs in"),
        sole_user(directory),
    ):
        pass
    with sole_user(directory):
        assert directory.is_dir()
