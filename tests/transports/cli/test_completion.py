"""What helps to type a command: examples that work, and a shell that completes."""

import argparse
import shlex
import subprocess
import sys

import pytest

from transports.cli import main
from transports.cli.arguments import ArgumentParser
from transports.cli.program import _parser

ASKED = """
source "$1"
complete -p penstock >&2
ask() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _shtab_penstock
    echo "${COMPREPLY[*]}"
}
ask penstock ta
ask penstock tail --con
ask penstock tail --content ""
ask penstock log cr
ask penstock verify sh
ask penstock append shop sh
"""


def parsers(parser):
    parser.fill()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


def test_the_help_of_every_command_ends_with_an_example_that_it_understands(monkeypatch):
    _, *commands = parsers(_parser({}))
    assert len(commands) > 15
    for one in commands:
        assert isinstance(one, ArgumentParser)
        assert one.format_help().endswith(f"\nexample:\n  {one.example}\n")
        name, *words = shlex.split(one.example.rpartition(" | ")[2].removeprefix("source <(").rstrip(")"))
        assert name == "penstock"
        assert f"{name} {' '.join(words)}".startswith(one.prog)
        assert callable(_parser({}).parse_args(words).command)


def test_bash_completes_commands_options_values_and_directories(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shares.jsonl").touch()
    asked = subprocess.run(
        ["bash", "--norc", "-c", ASKED, "bash", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "-F _shtab_penstock penstock" in asked.stderr
    assert asked.stdout.splitlines() == [
        "tail",
        "--content",
        "HEADER BODY",
        "create",
        "shop",
        "shares.jsonl shop",
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_that_names_the_commands(shell, capsys):
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert {"zsh": "#compdef penstock", "fish": "complete -c penstock"}[shell] in printed
    assert "entity-type" in printed


def test_a_shell_that_is_none_and_a_missing_package_are_told_in_one_line(capsys, monkeypatch):
    assert main(["completion", "csh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "needs shtab, which is not installed; run: pip install '" in said.err
    assert "[server]'" in said.err
