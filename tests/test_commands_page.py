"""Each command line of a page exists: its command, and its options. A runbook is read when there is no time to find out."""

import re
import shlex
from pathlib import Path

import pytest

from transports.cli.plugins import find_plugins
from transports.cli.program import _COMMANDS, _parser

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PARSER = _parser({})
EVERY = {option for each in PARSER.commands() for action in each.actions for option in action.option_strings}
SPANS = ("commit", "deliver")  # names of spans of OpenTelemetry, which begin with penstock too
OTHERS = {
    *(
        "--preload",
        "--max-requests",
        "--timeout",
        "--reload",
        "--workers",
        "--ws",
        "--root-path",
        "--proxy-headers",
    ),
    *("--timeout-graceful-shutdown",),  # gunicorn and uvicorn
    "--max-transaction-timeout",  # kafka-transactions.sh
    *("--part", "--round", "--scene", "--seed", "--sync", "--remark"),  # programs of the tests
}


def blocks_and_prose(page):
    """The text of the blocks for a shell, and what stands outside of blocks."""
    text = page.read_text()
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shell = "\n".join(
        block for language, block in fenced if language in ("", "bash", "console", "ini", "yaml")
    )
    return shell, re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def lines_of(page):
    """The command lines in the blocks and in the running text of a page."""
    shell, prose = blocks_and_prose(page)
    for line in shell.splitlines():
        found = re.search(r"(?:^|[|(&/] ?|\$ |=orders opentelemetry-instrument )penstock ([a-z][^#&]*)", line)
        if found and "  http" not in line:  # that is the output of a command
            yield found[1].strip().removesuffix(")"), True
    for span in re.findall(r"`penstock ([^`]+)`", prose):
        yield span.replace("\\|", "|").replace("\n", " "), False


def words_of(line):
    try:
        return shlex.split(line.partition(" > ")[0])
    except ValueError:  # an ellipsis, or a quotation mark of the sentence
        return line.split()


def commands_of(words):
    """The parsers of the commands that a line names, and the words behind them; ``a|b`` names two."""
    found, rest = [PARSER], list(words)
    while rest:
        names = rest[0].split("|")
        below = [
            action.choices for each in found for action in each.actions if isinstance(action.choices, dict)
        ]
        if not below:
            break
        for name in names:
            assert any(name in each for each in below), f"there is no command {name!r}"
        found = [each[name] for each in below for name in names if name in each]
        for each in found:
            each.fill()
        rest.pop(0)
    return found, rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_line_of_a_page_exists(page):
    plugins = find_plugins(without=_COMMANDS)
    for line, whole in lines_of(page):
        words = words_of(line)
        if words[0] in (*plugins, *SPANS) or words[0].isupper() or words[0].startswith("--"):
            continue
        try:
            commands, rest = commands_of(words)
        except AssertionError as error:
            raise AssertionError(f"penstock {line}: {error}") from None
        known = [{option for action in each.actions for option in action.option_strings} for each in commands]
        for word in rest:
            for option in re.findall(r"^\[?(--[a-z-]+)", word):
                assert all(option in each for each in known), f"penstock {line}: there is no option {option}"
        if whole and not re.search(r"[\[|…]|\b[A-Z]{2,}\b", line):
            PARSER.parse_args(words)  # and its values are of their kinds


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "history.md"], ids=lambda page: page.name
)
def test_each_option_that_a_page_names_is_one_of_a_command(page):
    """In the row of a table about a command it is one of that command."""
    _, prose = blocks_and_prose(page)
    for line in prose.splitlines():
        named = {
            option
            for span in re.findall(r"`(--[^`]+)`", line)
            for option in re.findall(r"--[a-z][a-z-]+", span)
        }
        known = EVERY | OTHERS
        if row := re.match(r"\| `penstock ([^`]+)`", line):
            words = words_of(row[1].replace("\\|", "|"))
            if words[0] in find_plugins():
                continue
            commands, _ = commands_of(words)
            parsers = [below for each in commands for below in each.commands()]
            known = {
                option for each in parsers for action in each.actions for option in action.option_strings
            }
        assert named <= known, (line[:80], sorted(named - known))


def test_each_option_of_a_command_is_in_a_page():
    told = " ".join(page.read_text() for page in PAGES)
    missing = sorted(
        option for option in EVERY if option.startswith("--") and not re.search(rf"{option}\b(?!-)", told)
    )
    assert missing == []
