"""docs/views.md does what it says."""

import contextlib
import hashlib
import hmac
import io
import re
from pathlib import Path

import pytest

from publishers import ChangeLog, Images
from transports import serve

PAGE = (Path(__file__).parent.parent / "docs" / "views.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_program_prints_what_the_page_shows(tmp_path, monkeypatch):
    """F7, F59."""
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks("python")[0], "views.md", "exec"), {"__name__": "__main__"})
    card = hmac.new(b"a key of sixteen bytes or more", b"4111111111111234", hashlib.sha256).hexdigest()
    assert printed.getvalue() == blocks("")[0].replace("HASH", card)


@pytest.fixture
def log(tmp_path):
    with ChangeLog.open(tmp_path / "log") as log:
        yield log


def test_the_policy_of_the_page_serves(log):
    """F59."""
    servers = []

    def spy(*given, **named):
        servers.append(serve(*given, **named))

    program = blocks("python")[1].replace("View, serve", "View")
    found = {"log": log, "serve": spy, "check": lambda _token: True}
    try:
        exec(compile(program, "views.md", "exec"), found)
        assert len(servers) == 2
    finally:
        for server in servers:
            server.stop()


def test_every_mode_is_told():
    for images in Images:
        assert f"| `{images.name}`" in PAGE
