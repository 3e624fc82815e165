"""Commands that other packages bring."""

import re
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from transports.cli import main, plugins


@pytest.fixture
def bring(monkeypatch):
    """Installs a command; its module has what is given."""

    def bring(name, **module):
        monkeypatch.setitem(sys.modules, "others", types.SimpleNamespace(**module) if module else None)
        entry = EntryPoint(name, "others:run", "penstock.commands")
        monkeypatch.setattr(plugins, "entry_points", lambda *, group: [entry] * (group == entry.group))

    return bring


def test_a_command_of_another_package_gets_its_own_arguments(bring):
    seen = []
    bring("fly", run=lambda arguments: seen.append(arguments) or 7)
    assert main(["fly", "--rows", "5", "--help"]) == 7
    assert seen == [["--rows", "5", "--help"]]
    bring("fly", run=lambda _: None)
    assert main(["fly"]) == 0


def test_the_help_and_completion_name_it_by_its_docstring(bring, capsys):
    def run(arguments):
        """Show 100 % of it.

        And more.
        """

    bring("fly", run=run)
    assert main(["--help"]) == 0
    assert "    fly       show 100 % of it\n" in capsys.readouterr().out
    assert main(["completion", "bash"]) == 0
    assert re.search(r"_subparsers=\(.*\bfly\b", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ({}, "ModuleNotFoundError: import of others halted; None in sys.modules"),
        ({"other": 1}, "AttributeError: "),
        ({"run": 1}, "it is int, which cannot be called"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line_and_spoils_no_help(bring, capsys, module, why):
    bring("fly", **module)
    assert main(["fly", "away"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"penstock: the command fly (others:run) cannot be loaded: {why}")
    assert main(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"fly the command fly (others:run) cannot be loaded: {why}" in told


def test_what_it_does_not_catch_is_one_line_too(bring, capsys, monkeypatch):
    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)
    bring("fly", run=lambda _: 1 // 0)
    assert main(["fly"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("penstock: internal error: ZeroDivisionError")
    assert said.count("\n") == 1


def test_a_command_of_our_own_is_never_another_s_and_looks_for_none(bring, capsys, monkeypatch):
    bring("version", run=lambda _: 7)
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.count("print the version") == 1
    bring("completion", run=lambda _: 7)
    assert main(["completion", "bash"]) == 0
    monkeypatch.setattr(plugins, "entry_points", lambda **_: 1 // 0)
    assert main(["version"]) == 0


def test_the_demo_is_found_among_what_is_installed():
    assert plugins.find_plugins()["demo"].value == "penstock_flights.command:main"
