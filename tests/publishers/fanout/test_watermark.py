"""The one publication point."""

from publishers.fanout.watermark import Watermark


def test_the_watermark_never_moves_back():
    """F30."""
    watermark = Watermark(5)
    watermark.advance(7)
    watermark.advance(6)
    assert watermark.visible == 7
