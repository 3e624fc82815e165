"""The page of operations is made of the table, and all that it names is there."""

import inspect
import re
from pathlib import Path

import pytest

from tests.transports.operations import page
from transports.cli import main
from transports.client.remote_groups import RemoteGroups
from transports.client.remote_log import RemoteLog
from transports.client.remote_slots import RemoteSlots
from transports.operations.calls import CALLS
from transports.operations.operation import LogOperation
from transports.operations.table import OPERATIONS
from transports.resp.commands import COMMANDS

ROOT = Path(__file__).parents[3]
NAMES = [page.name_of(one) for one in OPERATIONS]


def test_the_page_is_made_of_the_table():
    """F187: ``python -m tests.transports.operations.page`` writes it."""
    assert page.PAGE.read_text() == page.written()
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_operation_has_a_method_and_a_command(name, capsys):
    """F187."""
    owner, _, method = page.python(name).rpartition(".")
    assert callable(getattr({"": RemoteLog, "slots": RemoteSlots, "groups": RemoteGroups}[owner], method))
    assert main([*page.command(name).split(), "--help"]) == 0
    assert f"penstock {page.command(name)}" in capsys.readouterr().out


def test_what_other_faces_have_is_there():
    """F187."""
    schema = (ROOT / "docs" / "schema.graphql").read_text()
    for field in page.GRAPHQL.values():
        name = re.match(r"\w+", field)[0]
        assert re.search(rf"^  {name}\b", schema, re.MULTILINE), field
    for command in page.REDIS.values():
        assert command.split()[0] in COMMANDS
    script = (ROOT / "transports" / "browser" / "penstock.js").read_text()
    for name in CALLS:
        method = re.match(r"\w+", page.JAVASCRIPT.get(name, name))[0]
        assert re.search(rf"^  (async )?{method}\(", script, re.MULTILINE), method


@pytest.mark.parametrize("operation", [*OPERATIONS, *CALLS.values()], ids=lambda one: one.__name__)
def test_each_operation_says_what_it_does_and_what_its_fields_are(operation):
    """F187."""
    said = inspect.cleandoc(operation.__doc__)
    assert said.partition("\n")[0].endswith(".")
    for base in operation.__mro__[1:]:
        said += base.__doc__ or ""
    for field in operation.__struct_fields__:
        assert f"{field}:" in said, field
    assert operation.run is not LogOperation.run
