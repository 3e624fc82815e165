import io

import pytest
from rich.console import Console

from penstock_flights.display import LineDisplay, LiveDisplay, megabytes
from penstock_flights.progress import DemoProgress, ProgressRow
from publishers.spark import SinkStatistics

PROGRESS = DemoProgress(
    events=1_000_898,
    committed=500_000,
    rate=31_234.5,
    batch=25,
    batches=51,
    nbytes=210_000_000,
    sink=SinkStatistics(
        batches=25,
        rows=500_000,
        batch_rows=20_000,
        gate_seconds=0.001,
        encode_seconds=0.4,
        commit_seconds=0.05,
    ),
    reached="2013-07-01T12:34:00.000000Z",
    doing="Spark streams",
    rows=(
        ProgressRow("in-process gate", "every flight", 499_000, 31_000.0, 499_000, 1_000, 8_192, "LIVE", 0),
        ProgressRow("WebSocket", "*/JFK", 166_000, 10_000.0, 500_000, 0, 4_096, "LIVE", 0),
        ProgressRow("slow WebSocket", "every flight", 12_000, 900.0, 12_000, 488_000, 800, "RESYNC", 2),
    ),
)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_lines_come_at_most_every_two_seconds():
    lines, clock = [], Clock()
    display = LineDisplay(lines.append, clock=clock)
    display.doing("Spark starts")
    for _ in range(41):
        display.show(PROGRESS)
        clock.now += 0.1
    display.close()
    assert lines[0] == "   0.0 s  Spark starts ..."
    assert len(lines) == 4
    assert "49 %" in lines[1]
    assert "slow WebSocket 12,000, 488,000 behind, RESYNC" in lines[1]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_picture_fits_the_terminal_and_shows_everybody(width):
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=40, record=True)
    display = LiveDisplay(console, clock=clock)
    display.done("1,000,898 changes prepared")
    clock.now = 75.0
    display.show(PROGRESS)
    display.close()
    text = console.export_text()
    for part in (
        "01:15",
        "1 July 2013, 12:34 UTC",
        "micro-batch 25",
        "500,000 of 1,000,898",
        "31,234",
        "RESYNC 2x",
    ):
        assert part in text
    for row in PROGRESS.rows:
        assert row.title in text
        assert f"{row.behind:,}" in text
    assert ("*/JFK" in text) == (width >= 100)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_picture_can_be_closed_twice():
    display = LiveDisplay(Console(file=io.StringIO(), force_terminal=True, width=80))
    display.doing("something")
    display.close()
    display.close()


def test_a_size_is_told_in_megabytes():
    assert megabytes(1_234_567_890) == "1,235 MB"
