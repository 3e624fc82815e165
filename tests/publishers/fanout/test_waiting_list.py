"""What an advance wakes although nothing may match."""

from publishers.fanout.waiting_list import WaitingList
from publishers.fanout.watermark import Watermark


def test_what_is_parked_is_woken_by_one_advance_and_a_commit_looks_for_it():
    waiting, one = WaitingList(Watermark(3)), object()
    assert waiting.empty
    waiting.park(one)
    assert not waiting.empty
    assert list(waiting.due(None)) == [one]
    assert waiting.empty
    assert list(waiting.due(None)) == []
