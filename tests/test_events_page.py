"""The page about events does what it says."""

import contextlib
import io
import os
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "events.md"


def blocks(language):
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_programs_print_what_the_page_shows(tmp_path):
    """F3, F4, F9, F16, F17, F18, F22, F23, F24, F139."""
    program, shown = "".join(blocks("python")), "".join(blocks(""))
    printed = io.StringIO()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    told = re.sub(r"'id': '[0-9a-f-]{36}'", "'id': '...'", printed.getvalue())
    assert re.sub(r"'bytes': \d+", "'bytes': 708", told) == shown
