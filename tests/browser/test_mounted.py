"""The pages inside a web application of others, below a prefix, in a real browser."""

import pytest

from penstock_flights.pages import board_pages
from publishers.log.changelog import ChangeLog
from publishers.mutations.mutation import upsert
from tests.transports.server.test_mounted import litestar, mounted, starlette


@pytest.fixture(params=[starlette, litestar])
def place(request, tmp_path):
    with (
        ChangeLog.open(tmp_path / "flights") as log,
        mounted(log, request.param, "/on/live", board_pages()) as url,
    ):
        yield log, url


def test_the_board_follows_the_log(place, tab, flights):
    log, url = place
    log.commit([upsert("flight", key, body) for key, body in flights[:100]])
    tab.open(f"{url}?mode=replay&pace=7")  # a web application may need the slash, and sends the browser there
    tab.until("globalThis.board?.handled === 100")
    assert tab.run("location.pathname + location.search") == "/on/live/?mode=replay&pace=7"


@pytest.mark.parametrize(
    ("place", "asked"), [(starlette, "graphql"), (litestar, "graphql/")], indirect=["place"]
)
def test_graphiql_asks_and_subscribes(place, tab, asked, wait_for):
    log, url = place
    tab.open(f"{url}/{asked}")
    tab.until("!!document.querySelector('.graphiql-query-editor .CodeMirror')")
    tab.run("document.querySelector('.graphiql-execute-button').click()")
    wait_for(lambda: log.statistics().publishers)
    log.commit([upsert("order", "shown on the page", {"total": 1})])
    tab.until(
        "document.querySelector('.result-window .CodeMirror')?.CodeMirror.getValue().includes('shown on the page')"
    )
