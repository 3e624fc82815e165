"""What commands print."""

import argparse

import pytest

from transports.cli.output import fields, show


@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\n", "\x00", "\x9b2J", "\u2028", "\x7f"])
def test_a_text_of_others_writes_no_control_character_to_a_terminal(capsys, text):
    """F147: the name of a consumer, an error, a key: people and terminals see a question mark."""
    document = {"lastError": f"a{text}b"}
    show(argparse.Namespace(json=False), document, fields(document))
    found = capsys.readouterr().out
    assert found.startswith("last error: a?")
    assert found.removesuffix("\n").isprintable()
