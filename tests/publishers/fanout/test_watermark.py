"""The one publication point."""

import threading

from publishers.fanout.watermark import Watermark
from tests.publishers.support import in_threads


def test_the_watermark_never_moves_back():
    """F30."""
    watermark = Watermark(5)
    watermark.advance(7)
    watermark.advance(6)
    assert watermark.visible == 7


def test_who_waits_looks_after_each_advance_and_nudge():
    watermark = Watermark(0)
    nudged = threading.Event()

    def wait():
        assert watermark.wait_for(lambda: watermark.visible >= 2 and nudged.is_set(), 20)

    def move():
        watermark.advance(1)
        watermark.advance(2)
        nudged.set()
        watermark.nudge()

    in_threads(wait, move)
    assert not watermark.wait_for(lambda: False, 0)
