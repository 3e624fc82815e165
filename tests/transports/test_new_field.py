"""A field is added in one place: with four lines more in the table, each face tells of them and takes them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.transports.new_field import NAMES, SAID, plain

pytest.importorskip("pyspark")
pytest.importorskip("strawberry")

ROOT = Path(__file__).parents[2]
STORED = {
    "spark",
    "spark, of a server",
    "a line that is read",
}  # which have keys in base64, as the log has them
WITHOUT = {"debezium"}  # an envelope of Debezium has no place for what is attached


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    command = [sys.executable, "-m", "tests.transports.new_field", str(tmp_path_factory.mktemp("new"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_the_table_goes_the_whole_way(told, name):
    """F1, F22, F23: from a writer through the log and its reopening to every reader, and back from every writer."""
    wanted = dict.fromkeys(told, plain(SAID[name]))
    wanted |= dict.fromkeys(STORED, "YSBi") if name == "parent" else {}
    wanted |= dict.fromkeys(WITHOUT)
    if shutil.which("node") is None:
        told, wanted = dict(told), {face: value for face, value in wanted.items() if face != "penstock.js"}
        del told["penstock.js"]
    assert {face: found[name] for face, found in told.items()} == wanted
    assert len(told) >= 18
