"""Files for browsers: what every server has, what a program adds, with which headers, and that nothing else is served."""

import asyncio
import http.client
import re
from importlib import resources
from urllib.parse import urljoin

import pytest

import penstock_cdc
from penstock_cdc.errors import InvalidOption
from transports import Application, Page
from transports.browser.pages import _OWN as OWN
from transports.browser.pages import find_own
from transports.server.status import Status

SHELF = {"/": Page(b"<p>mine</p>", "text/html"), "/shop/list.css": Page(b"p {}", "text/css")}


async def ask(server, path, method="GET", **headers):
    """Asks for a path as it is: no client tidies it up."""

    def work():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.request(
                method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("path", OWN)
async def test_every_file_is_served_with_its_type_and_a_strict_policy(serving, path):
    status, body, headers = await ask(serving(), path)
    assert (status, body) == (200, resources.files("transports.browser").joinpath(OWN[path]).read_bytes())
    assert headers["content-type"] == find_own(path).kind
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*", policy)


def test_a_program_gets_the_client_by_the_facade():
    """For a web server of its own: without naming the package that has the file."""
    served = find_own("/board/penstock.js")
    assert penstock_cdc.Page.of_client() == served


def test_every_file_that_is_there_is_served():
    there = {file.name for file in resources.files("transports.browser").iterdir() if file.is_file()}
    assert {name for name in there if not name.endswith(".py")} == set(OWN.values())


@pytest.mark.parametrize("path", OWN)
def test_no_file_names_another_host_or_needs_what_the_policy_forbids(path):
    text = find_own(path).data.decode()
    named = set(re.findall(r"(?:https?|wss?)://([\w.]+)", text))
    assert named <= {"www.w3.org", "example.org"}  # a namespace, and an example in a comment
    assert not re.search(r"\bstyle=|\bon\w+=\"|innerHTML|\beval\(|<script>|@import", text)


@pytest.mark.parametrize(
    "path",
    [
        "/board",
        "/board/",
        "/board/board.js",
        "/board/../pages.py",
        "/board/..%2fpages.py",
        "/board/%2e%2e/board/penstock.js",
        "/board//penstock.js",
        "//board/penstock.js",
        "/board/penstock.js/",
        "/board/PENSTOCK.JS",
        "/board/penstock.js%00",
        "/shop/list.css",
        "/index.html",
        "/..",
    ],
)
async def test_nothing_else_is_served(serving, path):
    status, body, headers = await ask(serving(), path)
    assert status == 404
    assert headers["content-type"] == "application/json"
    assert b"import" not in body


def test_the_first_page_links_to_what_the_server_answers():
    links = re.findall(r'(?:href|src)="([^"#]+)"', find_own("/").data.decode())
    assert {urljoin("/", one) for one in links} == {*OWN, *Status.paths, "/graphql"} - {"/"}


def test_the_client_for_browsers_imports_nothing():
    assert "import " not in re.sub(r"(?s)/\*.*?\*/", "", find_own("/board/penstock.js").data.decode())


async def test_pages_of_the_program_are_served_beside_the_client_and_take_the_first_page(serving):
    server = serving(pages=SHELF)
    for path, page in SHELF.items():
        status, body, headers = await ask(server, path)
        assert (status, body, headers["content-type"]) == (200, page.data, page.kind)
        assert "default-src 'none'" in headers["content-security-policy"]
    assert (await ask(server, "/board/penstock.js"))[0] == 200
    assert (await ask(server, "/shop/other.css"))[0] == 404


@pytest.mark.parametrize("path", ["list.css", "", "/health", "/ws", "/graphql", "/graphql/mine.js"])
def test_a_page_at_a_path_that_is_another_s_is_refused(log, path):
    with pytest.raises(
        InvalidOption, match="a path that begins with / and is none of /changes, /graphql, /health"
    ):
        Application(log, pages={path: SHELF["/"]})


def test_a_page_is_read_with_the_type_that_its_name_tells(tmp_path):
    for name, kind in (("a.html", "text/html"), ("b.c.css", "text/css"), ("d.js", "text/javascript")):
        (tmp_path / name).write_text(name)
        assert Page.read(tmp_path / name) == Page(name.encode(), f"{kind}; charset=utf-8")
    with pytest.raises(
        InvalidOption, match=r"page is 'notes', but must be a name that ends in html, css, js, ts, svg"
    ):
        Page.read(tmp_path / "notes")


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
