"""Makes docs/board.png from the real page: a winter day on the departure board.

Run ``python docs/board.py [FILE]`` where there is a chromium; ``.ci/browser`` installs one on Debian.
"""

import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from penstock_cdc import ChangeLog, Mutation, serve, upsert
from penstock_flights.afterwards import flight_change
from penstock_flights.flights import flight_events
from penstock_flights.pages import board_pages
from tests.browser.chromium import chromium

PICTURE = Path(__file__).with_name("board.png")
UNTIL = "2013-01-02T18:33"  # in UTC: half past one in New York, and one flight is just cancelled
SLOWLY = 9  # minutes at the end that pass while the page looks on


def minutes() -> Iterator[list[Mutation]]:
    """The changes of each minute, as they went."""
    rows = (row for row in flight_events(6000).to_pylist() if row["time"].isoformat() < UNTIL)
    for _, some in groupby(rows, key=lambda row: row["time"]):
        yield [upsert("flight", *flight_change(row)) for row in some]


def main(picture: Path) -> None:
    """Fills a log, opens the board, and takes the picture while flights leave."""
    passing = list(minutes())
    with (
        tempfile.TemporaryDirectory() as place,
        ChangeLog.open(Path(place, "today"), ring_events=32, sync="os") as log,
        serve(log, pages=board_pages()) as server,
        chromium() as browser,
        browser.tab() as tab,
    ):
        for changes in passing[:-SLOWLY]:
            log.commit(changes)
        tab.look(1440, 970)
        tab.open(server.home_url)
        tab.until("board.changes?.state === 'LIVE' && board.handled > 200")
        for changes in passing[-SLOWLY:]:
            log.commit(changes)
            # Long enough for the flaps to turn, and short enough that those who left are still there.
            tab.run("new Promise((resolve) => setTimeout(resolve, 500))")
        tab.until("document.getAnimations().length === 0")
        picture.write_bytes(tab.picture())
        assert not tab.complaints, tab.complaints


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
