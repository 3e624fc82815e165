"""The file of a state, without its log."""

import sqlite3
from uuid import UUID

import pytest

from publishers.state.rows import RowPlace
from publishers.state.table import StateTable, TablePlace, damaged
from publishers.wal.disk.descriptors import DESCRIPTORS

ONE, OTHER = UUID(int=1), UUID(int=2)


def test_the_rows_of_another_log_are_none(tmp_path):
    """F146: a directory may be copied, and its log be made anew."""
    place = TablePlace("token", 7, 0)
    table = StateTable(tmp_path, ONE)
    assert table.place is None
    table.begin()
    table.commit(place)
    assert table.place == place
    table.close()
    for log_id, known in ((ONE, place), (OTHER, None), (ONE, place)):
        table = StateTable(tmp_path, log_id)
        assert table.place == known
        table.close()


def test_a_table_that_is_closed_is_not_damaged(tmp_path):
    """F146: whoever reads it then is refused, and the file is kept."""
    table = StateTable(tmp_path, ONE)
    table.close()
    table.close()
    with pytest.raises(sqlite3.ProgrammingError) as caught:
        table.find([])
    assert not damaged(caught.value)


def test_a_table_can_be_emptied_and_an_emptying_be_undone(tmp_path):
    """F146: to be filled anew."""
    table = StateTable(tmp_path, ONE)
    table.rollback()
    table.begin()
    table.commit(TablePlace("token", 7, 0))
    table.begin()
    table.clear()
    table.rollback()
    assert table.place == TablePlace("token", 7, 0)
    table.begin()
    table.clear()
    table.commit(TablePlace("other", 8, 0))
    assert table.place == TablePlace("other", 8, 0)
    assert table.find([]).rows == []
    table.check()
    table.close()


def test_a_page_begins_behind_a_row_whatever_spans_and_types_lie_before_it(tmp_path):
    """F89: they were read with an earlier page."""
    table = StateTable(tmp_path, ONE)
    after = RowPlace("order", b"x")
    for spans in (None, lambda _: [(b"a", b"c"), (b"d", b"z")]):
        assert table.read(after, ["customer", "order"], 10, 1000, spans).rows == []
    table.close()


def test_a_sync_that_took_a_descriptor_of_the_reserve_gives_it_back(tmp_path):
    """F147: other logs of the process need it too."""
    table = StateTable(tmp_path, ONE)
    DESCRIPTORS.low = True
    table.sync()
    assert not DESCRIPTORS.low
    table.close()


def test_a_file_whose_pages_contradict_each_other_is_damaged(tmp_path):
    """F146: SQLite opens it, and only a look through the whole file tells."""
    StateTable(tmp_path, ONE).close()
    (path,) = (
        one for one in tmp_path.iterdir() if one.suffix not in {".db-wal", ".db-shm"} and one.stat().st_size
    )
    with path.open("r+b") as file:
        file.seek(36)  # the number of free pages, in the header
        file.write((5).to_bytes(4, "big"))
    table = StateTable(tmp_path, ONE)
    with pytest.raises(sqlite3.DatabaseError) as caught:
        table.check()
    assert damaged(caught.value)
    table.close()
