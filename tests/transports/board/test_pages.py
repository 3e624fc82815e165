"""The files of the board: what is served, with which headers, and that nothing else is."""

import asyncio
import http.client
import re
from importlib import resources
from urllib.parse import urljoin

import pytest

from transports.board import find_page
from transports.board.pages import _FILES as FILES
from transports.facts import Facts


async def ask(server, path, method="GET", **headers):
    """Asks for a path as it is: no client tidies it up."""

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        try:
            connection.request(
                method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("path", FILES)
async def test_every_file_is_served_with_its_type_and_a_strict_policy(serving, path):
    status, body, headers = await ask(serving(), path)
    assert (status, body) == (200, resources.files("transports.board").joinpath(FILES[path][0]).read_bytes())
    assert headers["content-type"] == FILES[path][1]
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*", policy)


def test_every_file_that_is_there_is_served():
    there = {file.name for file in resources.files("transports.board").iterdir() if file.is_file()}
    assert {name for name in there if not name.endswith(".py")} == {name for name, _ in FILES.values()}


@pytest.mark.parametrize("path", FILES)
def test_no_file_names_another_host_or_needs_what_the_policy_forbids(path):
    text = find_page(path).data.decode()
    named = set(re.findall(r"(?:https?|wss?)://([\w.]+)", text))
    assert named <= {"www.w3.org", "example.org"}  # a namespace, and an example in a comment
    assert not re.search(r"\bstyle=|\bon\w+=\"|innerHTML|\beval\(|<script>|@import", text)


@pytest.mark.parametrize(
    "path",
    [
        "/board",
        "/board/",
        "/board/pages.py",
        "/board/__init__.py",
        "/board/../pages.py",
        "/board/..%2f..%2fapplication.py",
        "/board/%2e%2e/board/board.css",
        "/board//board.css",
        "//board/board.css",
        "/board/board.css/",
        "/board/BOARD.CSS",
        "/board/board.css%00",
        "/index.html",
        "/..",
    ],
)
async def test_nothing_else_is_served(serving, path):
    status, body, headers = await ask(serving(), path)
    assert status == 404
    assert headers["content-type"] == "application/json"
    assert b"import" not in body


@pytest.mark.parametrize("path", [path for path, (_, kind) in FILES.items() if kind.startswith("text/html")])
def test_links_lead_to_what_the_server_answers(path):
    text = find_page(path).data.decode()
    links = {urljoin(f"http://board{path}", one) for one in re.findall(r'(?:href|src)="([^"#]+)"', text)}
    assert {one.removeprefix("http://board") for one in links} <= {*FILES, *Facts.paths, "/graphql"}


def test_the_board_links_to_graphiql_statistics_and_documentation():
    links = re.findall(r'<a href="([^"#]+)"', find_page("/").data.decode())
    assert {"graphql", "statistics", "board/help.html"} <= set(links)


async def test_a_browser_that_has_a_file_is_told_so(serving):
    server = serving()
    _, body, headers = await ask(server, "/board/penstock.js")
    tag = headers["etag"]
    assert headers["cache-control"] == "no-cache"
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, nothing, again = await ask(server, "/board/penstock.js", if_none_match=known)
        assert (status, nothing, again["etag"]) == (304, b"", tag)
    assert (await ask(server, "/board/penstock.js", if_none_match='"other"'))[:2] == (200, body)


async def test_head_is_get_without_the_body_and_other_methods_are_refused(serving):
    server = serving()
    _, body, asked = await ask(server, "/")
    status, nothing, headers = await ask(server, "/", "HEAD")
    assert (status, nothing, headers["content-length"]) == (200, b"", str(len(body)))
    assert headers["etag"] == asked["etag"]
    status, _, headers = await ask(server, "/", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_no_module_depends_on_anything_but_its_neighbours():
    for path in FILES:
        if path.endswith(".js"):
            imported = re.findall(
                r"^(?:import|export)\b[^;]*?from \"([^\"]+)\"", find_page(path).data.decode(), re.MULTILINE
            )
            assert all(f"/board/{one.removeprefix('./')}" in FILES for one in imported), path
    assert "import " not in re.sub(r"(?s)/\*.*?\*/", "", find_page("/board/penstock.js").data.decode())
