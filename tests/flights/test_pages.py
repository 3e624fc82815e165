"""The files of the board: all of them are served, and they need nothing from elsewhere."""

import re
import urllib.request
from importlib import resources
from urllib.parse import urljoin

import pytest

from penstock_flights.front import Front
from penstock_flights.pages import board_pages
from transports.browser.pages import find_own
from transports.server.status import Status

PAGES = board_pages()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    front = Front(tmp_path_factory.mktemp("front") / "stage", 0)
    yield front.server.home_url.rstrip("/")
    front.close()


def page_of(path):
    return PAGES.get(path) or find_own(path)


def test_every_file_that_is_there_is_served(home):
    board = resources.files("penstock_flights").joinpath("board")
    there = {file.name: file.read_bytes() for file in board.iterdir() if file.is_file()}
    assert {path.rpartition("/")[2] or "index.html": page.data for path, page in PAGES.items()} == there
    for path, page in PAGES.items():
        with urllib.request.urlopen(home + path) as answer:
            assert (answer.read(), answer.headers["content-type"]) == (page.data, page.kind)


@pytest.mark.parametrize("path", PAGES)
def test_no_file_names_another_host_or_needs_what_the_policy_forbids(path):
    text = PAGES[path].data.decode()
    assert set(re.findall(r"(?:https?|wss?)://([\w.]+)", text)) <= {"www.w3.org"}  # a namespace
    assert not re.search(r"\bstyle=|\bon\w+=\"|innerHTML|\beval\(|<script>|@import", text)


@pytest.mark.parametrize("path", [path for path in PAGES if path == "/" or path.endswith(".html")])
def test_links_lead_to_what_the_server_answers(path):
    links = {urljoin(path, one) for one in re.findall(r'(?:href|src)="([^"#]+)"', PAGES[path].data.decode())}
    answered = {*Status.paths, "/graphql"}
    assert all(one in answered or page_of(one) for one in links), links


def test_the_board_links_to_graphiql_statistics_and_documentation():
    links = re.findall(r'<a href="([^"#]+)"', PAGES["/"].data.decode())
    assert {"graphql", "statistics", "board/help.html"} <= set(links)


@pytest.mark.parametrize("path", [path for path in PAGES if path.endswith(".js")])
def test_no_module_depends_on_anything_but_its_neighbours(path):
    imported = re.findall(
        r"^(?:import|export)\b[^;]*?from \"([^\"]+)\"", PAGES[path].data.decode(), re.MULTILINE
    )
    assert all(page_of(urljoin(path, one)) for one in imported)
