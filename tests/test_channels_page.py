"""docs/channels.md does what it says."""

import contextlib
import io
import re
from pathlib import Path

from flow import Overflow
from publishers.channels import Channels

PAGE = (Path(__file__).parent.parent / "docs" / "channels.md").read_text()


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_program_prints_what_the_page_shows():
    """F71."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks("python")[0], "channels.md", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == blocks("")[0]


def test_every_policy_with_a_bound_is_told_and_the_defaults_are_those():
    with Channels() as channels:
        feed = channels.messages("a")
        assert (feed.overflow, f"{feed.capacity:,}") == (Overflow.ERROR, "1,024")
    for overflow in set(Overflow) - {Overflow.BUFFER}:
        assert f"| `{overflow.value}` |" in PAGE
