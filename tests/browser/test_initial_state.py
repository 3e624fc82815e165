"""The page about the initial state: what it tells web pages to do."""

import json
import re
from pathlib import Path

from publishers.mutations.mutation import remove, upsert

PAGE = Path(__file__).parents[2] / "docs" / "initial-state.md"
IMPORT = 'import { connect } from "/live/board/penstock.js";'


def scripts():
    """What the page shows for web pages, to be run on one of the server's."""
    found = re.findall(r"^```js\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert all(script.startswith(IMPORT) for script in found)
    return [script.removeprefix(IMPORT).replace("/live/", "/") for script in found]


def test_a_page_keeps_a_map_as_the_log_tells_it(airport, tab):
    """F88, F146."""
    place = airport(state=True)
    place.log.commit([upsert("order", "41", {"total": "1.00"})])
    script, _ = scripts()
    tab.open(f"{place.url}health")
    tab.run(f"""(async () => {{
      const {{ connect }} = await import("/board/penstock.js");
      const show = (orders) => globalThis.shown = Object.fromEntries(orders);
      globalThis.running = (async () => {{ {script} }})();
    }})()""")
    tab.until("globalThis.shown")
    place.log.commit([remove("order", "41"), upsert("order", "42", {"total": "2.00"})])
    tab.until("shown[42]")
    assert tab.run("shown") == {"42": {"total": "2.00"}}


def test_a_page_shows_the_state_and_what_changes_without_a_gap(airport, tab):
    place = airport()
    put = [upsert("order", key, {"total": total}) for key, total in (("41", "1.00"), ("42", "10.00"))]
    place.log.commit(put)
    since = str(place.log.token(place.log.head))
    place.log.commit([upsert("order", "43", {"total": "5.00"})])
    state = [{"id": "41", "total": "1.00"}, {"id": "42", "total": "10.00"}, {"id": "43", "total": "5.00"}]
    _, script = scripts()
    tab.open(f"{place.url}health")
    tab.run(f"""(async () => {{
      const {{ connect }} = await import("/board/penstock.js");
      const fetch = async () => new Response({json.dumps(json.dumps({"since": since, "orders": state}))});
      const show = (orders) => globalThis.shown = Object.fromEntries(orders);
      globalThis.running = (async () => {{ {script} }})();
    }})()""")
    tab.until("globalThis.shown && Object.keys(shown).length === 3")
    place.log.commit([upsert("order", "42", {"total": "12.00"}), remove("order", "41")])
    tab.until("Object.keys(shown).length === 2")
    assert tab.run("shown") == {"42": {"total": "12.00"}, "43": {"total": "5.00"}}
