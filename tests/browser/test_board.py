"""The departure board in a real browser, fed through the real protocol."""

import json

import pytest

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


def test_flights_appear_depart_arrive_and_are_cancelled(airport, tab):
    place = airport()
    place.commit(3000, size=100)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 3000")
    told = statuses(place.flights)
    tab.until(f"document.querySelector('#count-departed').textContent === '{told.count('departed')}'")
    assert number(tab, "count-arrived") == told.count("arrived")
    assert number(tab, "count-cancelled") == told.count("cancelled")
    assert number(tab, "count-flying") == told.count("departed") - told.count("arrived")
    times = shown(tab, "time")
    assert len(times) > 8
    assert times == sorted(times)
    assert tab.run("document.querySelectorAll('#landed li').length") == 8


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
    tab.run(
        "document.querySelector('select').value = 'B6'; document.querySelector('select').dispatchEvent(new Event('input', {bubbles: true}))"
    )
    tab.until("board.changes.subscribed && board.changes.state === 'LIVE'")
    place.commit(500, size=50)
    both = [key for key in place.committed[1000:] if key.startswith("B6/") and key.endswith("/JFK")]
    tab.until(f"seen.length === {len(from_jfk) + len(both)}")
    assert tab.run(SEEN) == ",".join(from_jfk + both)
    assert set(shown(tab, "origin")) == {"JFK"}
    assert tab.run("location.search") == f"?mode=replay&airport=JFK&airline=B6&pace={ALL_THERE_IS}"


def test_pausing_leads_to_resync_and_resuming_back_to_live_with_the_exact_sequence(airport, tab):
    place = airport("today", ring_events=32)
    tab.open(place.url)
    tab.until("document.querySelector('input[name=mode]:checked').value === 'live'")
    tab.run(RECORD)
    tab.until("board.changes?.subscribed")
    place.commit(40)
    tab.until("seen.length === 40")
    tab.until("document.querySelector('#state').textContent === 'LIVE'")
    tab.click("#pause")
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
    place.commit(50)
    place.server = place._serve(port)
    tab.until("seen.length === 100")
    assert tab.run(SEEN) == ",".join(place.committed)
    # That nobody answered, or no longer, is what the browser itself noted.
    tab.complaints = [
        one for one in tab.complaints if "WebSocket connection" not in one and "ERR_" not in one
    ]


def test_the_board_is_used_by_keyboard(airport, tab):
    place = airport("today")
    place.commit(100)
    tab.open(place.url)
    tab.until("board.changes?.subscribed")
    tab.press(" ", 32, " ")
    tab.until("board.paused")
    assert tab.text("#pause-text") == "Resume"
    tab.press(" ", 32, " ")
    tab.until("!board.paused")
    reached = []
    for _ in range(5):
        tab.press("Tab", 9)
        name, outline = tab.run(
            "(() => { const e = document.activeElement; const seen = e.type === 'radio' ? e.nextElementSibling : e;"
            " return [e.name || e.id || e.className, getComputedStyle(seen).outlineStyle]; })()"
        )
        assert outline == "solid", name
        reached.append(name)
    # A range is skipped while it is disabled, as it is when the board goes along with the log.
    assert reached == ["skip", "mode", "airport", "airline", "pause"]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [360, 820, 1440])
def test_everything_fits_and_has_contrast(airport, tab, width, scheme):
    place = airport()
    place.commit(1500, size=50)
    tab.look(width, 900, scheme, calm=True)
    tab.open(f"{place.url}?mode=replay&pace={ALL_THERE_IS}")
    tab.until("board.handled === 1500 && document.querySelectorAll('#landed li').length")
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    cut = "[...document.querySelectorAll('.rows .row:first-child .cell')].every((e) => e.getBoundingClientRect().right <= document.querySelector('.board').getBoundingClientRect().right)"
    assert tab.run(cut)
    weak = tab.run(CONTRAST)
    assert weak == []


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
  const texts = document.querySelectorAll("p, h1, h1 span, h2, legend, .legend, output, .choice span, select, button, .cell, .flaps i, .delay, dt, dd, li span, strong");
  const weak = [];
  for (const e of texts) {
    if (!e.checkVisibility() || e.closest(".leaving")) continue;
    const [one, other] = [luminance(getComputedStyle(e).color), luminance(ground(e))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) weak.push(`${e.className || e.tagName}: ${e.textContent.trim()}`);
  }
  return weak;
})()"""


def test_nothing_moves_for_those_who_want_no_motion(airport, tab):
    place = airport()
    place.commit(1000, size=50)
    tab.look(1280, 900, calm=True)
    tab.open(f"{place.url}?mode=replay&pace=3")
    tab.until("Number(document.querySelector('#count-departed').textContent) > 3")
    assert tab.run("document.getAnimations().length") == 0


def test_a_board_without_flights_says_that_it_waits(airport, tab):
    tab.open(airport().url)
    tab.until("board.changes?.subscribed")
    assert tab.run("document.querySelector('.board .nothing').checkVisibility()")
    assert shown(tab, "time") == []
