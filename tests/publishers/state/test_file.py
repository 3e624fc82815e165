"""The file of a state, read without its log."""

import pytest

from publishers import ChangeLog, Position, upsert
from publishers.errors import StateIncomplete, StateUnusable
from publishers.state.table import file_of, find_in_file, look_at_file
from tests.publishers.support import wait_until

FIRST, LATER = Position(1, 0), Position(9, 0)


def test_what_it_says_is_what_the_log_said(tmp_path):
    """F146."""
    with ChangeLog.open(tmp_path, state=True) as log:
        log.commit([upsert("order", "1", {"total": 5}), upsert("order", "2", {})])
        wait_until(lambda: log.state.statistics().rows == 2)
    found = look_at_file(tmp_path, FIRST)
    assert (found.version, found.rows, found.log_id) == (1, 2, log.log_id.hex)
    assert found.nbytes == file_of(tmp_path).stat().st_size
    assert find_in_file(tmp_path, "order", b"1").key == "1"
    assert find_in_file(tmp_path, "order", b"3") is None
    with pytest.raises(StateIncomplete):
        look_at_file(tmp_path, LATER)


def test_a_file_that_is_missing_empty_or_none_is_told(tmp_path):
    """F146: no file is enough as long as the log has all of its history."""
    for oldest, error in ((FIRST, StateUnusable), (LATER, StateIncomplete)):
        with pytest.raises(error):
            look_at_file(tmp_path, oldest)
    with ChangeLog.open(tmp_path, state=True):
        pass
    with pytest.raises(StateUnusable, match="empty"):
        look_at_file(tmp_path, FIRST)
    file_of(tmp_path).write_bytes(b"no database" * 1000)
    with pytest.raises(StateUnusable):
        look_at_file(tmp_path, FIRST)
