"""The file of a state, without its log."""

from uuid import UUID

from publishers.state.table import StateTable, TablePlace

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
