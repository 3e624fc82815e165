import io

import pytest
from rich.console import Console

from penstock_flights.digest import StreamDigest
from penstock_flights.plan import SUBSCRIBERS
from penstock_flights.reception import ReceptionPlace
from penstock_flights.report import print_findings, print_hints, print_totals
from penstock_flights.verdict import judge

EXPECTED = StreamDigest(1_000_898, 0x7A299E012CD22, 5)


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=80, highlight=False)


def findings(**other):
    place = ReceptionPlace(
        "c", count=EXPECTED.count, ordered=EXPECTED.ordered, content=5, resyncs=1, returns=1, seconds=123.4
    )
    wrong = ReceptionPlace(**{name: getattr(place, name) for name in place.__dataclass_fields__} | other)
    names = [one.name for one in SUBSCRIBERS]
    places = dict.fromkeys(names, place) | {names[1]: wrong}
    return judge(SUBSCRIBERS, places, dict.fromkeys(names, EXPECTED), overtakes=True)


def test_the_table_fits_eighty_columns_and_shows_both_sides(console):
    print_findings(console, findings())
    text = console.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert text.count("1,000,898") == text.count("7a299e012cd22") == 6
    assert text.count("yes") == 6
    assert "WRONG" not in text


def test_what_is_wrong_is_said_in_words(console):
    print_findings(console, findings(count=1_000_000))
    text = console.file.getvalue()
    assert "WRONG  WebSocket: 1,000,000 changes came, but Spark counts 1,000,898 in the source" in text
    assert "NO" in text


def test_the_totals_tell_the_rate(console):
    print_totals(console, rows=1000, seconds=2.0, started=7.0, nbytes=5_000_000, versions=3)
    assert "500 a second" in console.file.getvalue()
    print_totals(console, rows=0, seconds=0.0, started=7.0, nbytes=5_000_000, versions=3)
    assert "nothing to add" in console.file.getvalue()


def test_hints_are_commands_that_can_be_copied(console, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "var" / "a long name with blanks" / "run-all" / "flights"
    print_hints(console, log=log, key="AA/1/2013-01-01/JFK", url="ws://127.0.0.1:8090/ws")
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert "penstock tail ws://127.0.0.1:8090/ws --log flights --since earliest --limit 3" in lines
    place = "'var/a long name with blanks/run-all/flights'"
    assert f"penstock tail {place} --since earliest --limit 2 --key AA/1/2013-01-01/JFK" in lines
