"""The README does what it says."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.ports import free_port

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def test_the_program_in_the_readme_prints_what_the_readme_shows(tmp_path):
    """F119."""
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


def test_the_commands_in_the_readme_do_what_they_say(tmp_path):
    serve, tail, append = next(
        block for block in blocks("") if block.startswith("penstock serve")
    ).splitlines()
    port = free_port()
    address = f"127.0.0.1:{port}"
    assert "127.0.0.1:8090" in tail
    commands = {
        "serve": serve.partition("#")[0].strip() + f" --port {port}",
        "tail": tail.replace("127.0.0.1:8090", address) + " --since earliest --limit 1",
        "append": append,
    }
    environment = {**os.environ, "PYTHONPATH": str(README.parent)}

    def started(name):
        # The shell stands aside, so that an end of the process is an end of penstock.
        penstock = f'penstock() {{ "{sys.executable}" -m transports.cli "$@"; }}; '
        return subprocess.Popen(
            ["bash", "-c", penstock + commands[name]],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    with started("append") as appending:
        assert "1 change committed" in appending.communicate(timeout=60)[0]
    with started("serve") as serving:
        try:
            assert serving.stdout is not None
            assert address in serving.stdout.readline()
            with started("tail") as tailing:
                assert '"key":"43","body":{"total": "1.00"}' in tailing.communicate(timeout=60)[0]
        finally:
            os.killpg(serving.pid, signal.SIGTERM)


OUTCOME = """
query.processAllAvailable()
query.stop()
keys = [change.key for change in log.history(limit=10).changes]
log.close()
"""


@pytest.mark.spark
def test_the_spark_program_in_the_readme_commits_each_micro_batch(spark, tmp_path):
    (program,) = (text for text in blocks("python") if "ChangeSink" in text)
    assert program.count('"var/') == 2
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "1.json").write_text('{"id": 1, "dest": "BQN"}\n{"id": 2, "dest": "MIA"}\n')
    names = {"stream": spark.readStream.schema("id long, dest string").json(str(tmp_path / "incoming"))}
    # Java has a working directory of its own, in which another test began the session.
    exec(compile(program.replace('"var/', f'"{tmp_path}/var/') + OUTCOME, "README.md", "exec"), names)
    assert names["keys"] == [None, "entity", "1", "2"]  # the schema of the rows is told first
