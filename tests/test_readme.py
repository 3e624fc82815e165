"""The README does what it says."""

import contextlib
import io
import os
import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_program_in_the_readme_prints_what_the_readme_shows(tmp_path):
    program = blocks("python")[0]
    shown = blocks("")[1]
    printed = io.StringIO()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    assert printed.getvalue() == shown


def test_every_file_that_the_readme_links_to_exists():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_program_is_as_short_as_it_is_called():
    lines = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(lines) <= 40
