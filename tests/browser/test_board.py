"""The departure board in a real browser, fed through the real protocol."""

import json

import pytest

from penstock_flights.front import Front
from penstock_flights.pages import board_pages
from transports import serve

ALL_THERE_IS = 7  # the last step of the slider for the pace
RECORD = "globalThis.seen = []; board.onevent = (event) => seen.push(event.key); true"
SEEN = "seen.join()"


def statuses(flights):
    return [json.loads(body)["status"] for _, body in flights]


def shown(tab, column):
    """The texts of a column, as they are read aloud."""
    return tab.run(
        f"[...document.querySelectorAll('.rows .row:not(.leaving) .{column} .aloud')].map((e) => e.textContent)"
    )


def number(tab, name):
    return int(tab.text(f"#{name}").replace(",", ""))


def counts(tab):
    return {name: number(tab, f"count-{name}") for name in ("flying", "departed", "arrived", "cancelled")}


def counts_of(flights, part=""):
    """What the counts are to be, for the keys in which there is ``part``."""
    told = statuses([flight for flight in flights if part in flight[0]])
    departed, arrived = told.count("departed"), told.count("arrived")
    return {
        "flying": departed - arrived,
        "departed": departed,
        "arrived": arrived,
        "cancelled": told.count("cancelled"),
    }


def choose(tab, airline):
    tab.run(
        f"(() => {{ const e = document.querySelector('select'); e.value = '{airline}';"
        " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def notices(tab, text):
    """Waits until something is said across the board."""
    tab.until(f"document.querySelector('#notice:not([hidden])')?.textContent === {json.dumps(text)}")


def test_flights_appear_depart_arrive_and_are_cancelled(airport, tab):
    place = airport()
    place.commit(3000, size=100)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 3000")
    told = counts_of(place.flights)
    tab.until(f"document.querySelector('#count-departed').textContent === '{told['departed']:,}'")
    assert counts(tab) == told
    times = shown(tab, "time")
    assert len(times) > 8
    assert times == sorted(times)
    assert tab.run("document.querySelectorAll('#landed li').length") == 8


def test_counts_are_those_of_the_filter(airport, tab):
    place = airport()
    place.commit(3000, size=100)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 3000")
    # A narrower filter needs nothing that is not there; any other one reads again, up to the same place.
    for origin in ("JFK", "LGA", ""):
        tab.click(f"input[name=airport][value='{origin}']")
        told = counts_of(place.flights, f"/{origin}")
        tab.until(f"document.querySelector('#count-departed').textContent === '{told['departed']:,}'")
        assert counts(tab) == told
        assert tab.text("#counts-title") == ("Flights" if not origin else f"Flights from {origin}")
        assert set(shown(tab, "origin")) <= ({origin} if origin else {"EWR", "JFK", "LGA"})
    choose(tab, "HA")
    tab.click("input[name=airport][value=LGA]")
    notices(tab, "No flights of Hawaiian from LGA so far.")
    assert counts(tab) == dict.fromkeys(("flying", "departed", "arrived", "cancelled"), 0)


def test_rows_change_as_time_goes_by(airport, tab):
    place = airport()
    place.commit(1000, size=50)
    tab.open(f"{place.url}?mode=replay&pace=5")
    tab.until(
        "[...document.querySelectorAll('.rows .status .aloud')].some((e) => e.textContent === 'scheduled')"
    )
    first = tab.text("#clock .flaps")
    tab.until("Number(document.querySelector('#count-departed').textContent) > 20")
    tab.until(
        "[...document.querySelectorAll('.rows .status .aloud')].some((e) => e.textContent === 'departed')"
    )
    assert tab.text("#clock .flaps") != first
    assert tab.text("#date") == "Tue, 1 Jan 2013"
    heads, rows, edges = tab.run(TABLE)
    assert heads == ["Time", "Flight", "To", "From", "Out", "Status", "Delay"]
    assert {len(row) for row in rows} == {len(heads)}
    assert all(row[-1] for row in rows if row[-2] in ("departed", "delayed"))
    assert not any(row[-1] for row in rows if row[-2] == "scheduled")
    assert len(set(edges)) == 1, "a delay is not below its heading"


TABLE = """(() => {
  const text = (cell) => (cell.querySelector(".aloud") ?? cell).textContent;
  const rows = [...document.querySelectorAll(".rows .row:not(.leaving)")];
  return [
    [...document.querySelectorAll("[role=columnheader]")].map(text),
    rows.map((row) => [...row.children].map(text)),
    [...document.querySelectorAll(".row.head, .rows .row")].map((row) => Math.round(row.lastElementChild.getBoundingClientRect().right)),
  ];
})()"""


def test_the_clock_asks_for_no_more_than_it_needs(airport, tab):
    place = airport()
    place.commit(3000, size=100)
    tab.open(f"{place.url}?mode=replay&pace=0")
    tab.until("board.changes?.buffered >= board.changes?.window / 2 && board.changes.demand === 0")
    window = tab.run("board.changes.window")
    (subscription,) = place.log.statistics().subscriptions
    assert subscription.demand == 0
    assert subscription.lag >= 3000 - tab.run("board.handled") - 2 * window


def test_filters_open_a_subscription_with_other_criteria_at_the_same_place(airport, tab):
    place = airport()
    place.commit(500, size=50)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 500")
    tab.run(RECORD)
    tab.click("input[name=airport][value=JFK]")
    tab.until("board.changes.subscribed && board.changes.state === 'LIVE'")
    assert [one.criteria for one in place.log.statistics().publishers] == [
        ({"entity_types": ["flight"], "key_globs": ["*/JFK"]},)
    ]
    assert set(shown(tab, "origin")) <= {"JFK"}
    place.commit(500, size=50)
    from_jfk = [key for key in place.committed[500:] if key.endswith("/JFK")]
    tab.until(f"seen.length === {len(from_jfk)}")
    assert tab.run(SEEN) == ",".join(from_jfk)
    choose(tab, "B6")
    tab.until("board.changes.subscribed && board.changes.state === 'LIVE'")
    place.commit(500, size=50)
    both = [key for key in place.committed[1000:] if key.startswith("B6/") and key.endswith("/JFK")]
    tab.until(f"seen.length === {len(from_jfk) + len(both)}")
    assert tab.run(SEEN) == ",".join(from_jfk + both)
    assert set(shown(tab, "origin")) == {"JFK"}
    assert tab.run("location.search") == f"?mode=replay&airport=JFK&airline=B6&pace={ALL_THERE_IS}"


def test_pausing_leads_to_resync_and_resuming_back_to_live_with_the_exact_sequence(airport, tab):
    place = airport("today", ring_events=32, sync="os")
    tab.open(place.url)
    tab.until("document.querySelector('input[name=mode]:checked').value === 'live'")
    tab.run(RECORD)
    tab.until("board.changes?.subscribed")
    tab.until("document.querySelector('#state').textContent === 'LIVE'")
    # Fewer at once than the ring holds, or a server that is slow to deliver falls out of it, and nothing is counted.
    for seen in (20, 40):
        place.commit(20)
        tab.until(f"seen.length === {seen}")
    # What all have taken is in the ring no more, and the drawing still shows what went through it.
    tab.until("document.querySelector('#drawing path.passed').getAttribute('d').split('M').length === 1 + 32")
    tab.until(
        "document.querySelector('#drawing .ring.label').textContent === 'ring: the newest events, all taken'"
    )
    tab.until("document.querySelector('#ring').textContent === '40'")
    assert tab.text("#ring-most") == "passed, 0 of 32 held"
    assert not tab.run("document.querySelector('#paused').checkVisibility()")
    tab.click("#pause")
    assert tab.run("document.querySelector('#paused').checkVisibility()")
    assert tab.run(
        "document.querySelector('#paused').className === document.querySelector('#state').className"
    )
    assert tab.text("#paused") == "PAUSED"
    place.commit(200)
    tab.until("document.querySelector('#state').textContent === 'RESYNC'")
    tab.until("board.changes.demand === 0")
    # The newest lag is that of all but what was asked for before the pause.
    tab.until("Number(document.querySelector('#lag').textContent) >= 200")
    assert tab.run("seen.length") == 40
    assert tab.text("#state-text") == "paused: the ring has moved on"
    tab.click("#pause")
    tab.until("seen.length === 240")
    tab.until("document.querySelector('#state').textContent === 'LIVE'")
    assert tab.run(SEEN) == ",".join(place.committed)
    tab.until("document.querySelector('#lag').textContent === '0'")
    assert not tab.run("document.querySelector('#paused').checkVisibility()")
    assert tab.run(SHIFTED) < 0.01


# How far what is shown was pushed about by other things; https://web.dev/articles/cls calls 0.1 good.
SHIFTED = """new Promise((resolve) => {
  let sum = 0;
  const add = (list) => list.getEntries().forEach((entry) => (sum += entry.hadRecentInput ? 0 : entry.value));
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => resolve(sum), 50);
})"""


def test_a_lost_server_is_found_again_and_nothing_is_missing(airport, tab):
    place = airport("today")
    tab.open(place.url)
    tab.run(RECORD)
    tab.until("board.changes?.subscribed")
    place.commit(50)
    tab.until("seen.length === 50")
    port = place.server.port
    place.server.stop()
    tab.until("document.querySelector('#state').textContent === 'RECONNECTING'")
    notices(tab, "The connection is lost. It is tried again, and the board goes on where it was.")
    place.commit(50)
    place.server = place._serve(port)
    tab.until("seen.length === 100")
    assert tab.run(SEEN) == ",".join(place.committed)
    tab.until("document.querySelector('#notice').hidden")
    # That nobody answered, or no longer, is what the browser itself noted.
    noted = ("WebSocket connection", "ERR_", "503")
    tab.complaints = [one for one in tab.complaints if not any(words in one for words in noted)]


def test_the_board_is_used_by_keyboard(airport, tab):
    place = airport("today")
    place.commit(100, size=50)
    tab.open(place.url)
    tab.until("board.changes?.subscribed")
    tab.press(" ", 32, " ")
    tab.until("board.paused")
    assert tab.text("#pause-text") == "Resume"
    tab.press(" ", 32, " ")
    tab.until("!board.paused")
    reached = []
    for _ in range(9):
        tab.press("Tab", 9)
        name, outline = tab.run(
            "(() => { const e = document.activeElement; const seen = e.type === 'radio' ? e.nextElementSibling : e;"
            " return [e.name || e.id || e.className || e.textContent, getComputedStyle(seen).outlineStyle]; })()"
        )
        assert outline == "solid", name
        if name == "airport":
            tab.press("ArrowRight", 39)
        reached.append(name)
    # A range is skipped while it is disabled, as it is when the board goes along with the log.
    controls = ["skip", "mode", "airport", "airline", "pause"]
    assert reached == [*controls, "GraphiQL", "Statistics", "Health", "Documentation"]
    tab.until("location.search === '?mode=live&airport=EWR'")


def test_everything_fits_has_contrast_and_can_be_touched(airport, tab):
    place = airport()
    place.commit(1500, size=50)
    tab.look(360, 900, calm=True)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 1500 && document.querySelectorAll('#landed li').length")
    tab.click("#pause")
    for width in (360, 390, 820, 1280, 1440, 2560):
        tab.look(width, 900, calm=True)
        assert tab.run("document.documentElement.scrollWidth <= innerWidth"), width
        assert tab.run(CUT) == [], width
        assert width > 600 or tab.run(SMALL) == [], width
    for width in (390, 1280):  # with and without the columns for which a phone has no room
        for scheme in ("dark", "light"):
            tab.look(width, 900, scheme, calm=True)
            assert tab.run(CONTRAST) == [], (width, scheme)


CUT = """(() => {
  const edge = document.querySelector(".board").getBoundingClientRect().right;
  const cells = [...document.querySelectorAll(".rows .row:first-child .cell, .head .cell")];
  return cells.filter((e) => e.getBoundingClientRect().right > edge).map((e) => e.className);
})()"""

SMALL = """[...document.querySelectorAll("a:not(.skip), button, select, input")].filter((e) => {
  const { width, height } = e.getBoundingClientRect();
  return width < 44 || height < 44;
}).map((e) => e.value || e.textContent)"""

CONTRAST = """(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).slice(0, 3).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const { backgroundColor, backgroundImage } = getComputedStyle(e);
      if (backgroundImage.startsWith("linear")) return backgroundImage.match(/rgb\\([^)]*\\)/)[0];
      const [, , , alpha = 1] = channels(backgroundColor);
      if (alpha > 0) return backgroundColor;
    }
  };
  const texts = document.querySelectorAll("p, h1, h1 span, h2, legend, .legend, output, .choice span, select, button, a, .cell, .rows .flaps i:first-child, dt, dd, li span, strong");
  const weak = [];
  for (const e of texts) {
    if (!e.checkVisibility() || e.closest(".leaving")) continue;
    const [one, other] = [luminance(getComputedStyle(e).color), luminance(ground(e))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) weak.push(`${e.className || e.tagName}: ${e.textContent.trim()}`);
  }
  return weak;
})()"""


def test_nothing_moves_for_those_who_want_no_motion(airport, tab):
    place = airport("today", sync="os")
    place.commit(300, size=50)
    tab.look(1280, 900, calm=True)
    tab.open(place.url)
    tab.until("board.handled === 300")
    place.commit(100, size=20)
    tab.until("board.handled === 400 && Number(document.querySelector('#count-departed').textContent) > 50")
    assert len(shown(tab, "time")) > 8
    assert tab.run("document.getAnimations().length") == 0


@pytest.fixture
def front(tmp_path):
    front = Front(tmp_path / "stage", 0)
    yield front
    front.close()


def test_what_the_demo_does_is_said_until_the_first_flights_come(front, airport, tab):
    front.say("Spark is starting.")
    tab.open(front.server.home_url)
    notices(tab, "Spark is starting.")
    assert tab.text("#state") == "WAITING"
    tab.until("document.querySelector('#news').textContent === 'WAITING: Spark is starting.'")
    front.logs["flights"] = (place := airport()).log
    front.say("Spark streams the first flights.")
    notices(tab, "Spark streams the first flights.")
    assert shown(tab, "time") == []
    place.commit(100, size=50)
    tab.until(
        "document.querySelector('#notice').hidden && document.querySelectorAll('.rows .row').length > 8"
    )
    assert tab.text("#state") != "WAITING"


def test_a_board_without_flights_says_that_it_waits(airport, tab):
    tab.open(airport().url)
    notices(tab, "Waiting for the first flights\u2026")
    assert shown(tab, "time") == []


def test_a_refused_board_says_why(airport, tab):
    with serve(airport().log, authenticate=lambda _: None, pages=board_pages()) as server:
        tab.open(server.home_url)
        tab.until("document.querySelector('#state').textContent === 'REFUSED'")
        assert "the token or certificate is missing, wrong or expired" in tab.text("#notice")
    tab.run("0")
    tab.complaints = [one for one in tab.complaints if "401" not in one and "ERR_" not in one]
