"""What the README, the docs and the examples show passes mypy and pyright as they are strictest, and is inferred as it should be."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.scale import LONG

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

# What a page takes for granted: names that its programs use and do not make, with their types.
GIVEN = {
    "README.md": ("from pyspark.sql import DataFrame", {"stream": "DataFrame"}),
    "docs/criteria.md": (
        "from penstock_cdc import ChangeLog; from penstock_cdc.mutations import schema",
        {"log": "ChangeLog"},
    ),
    "docs/delivery.md": (
        "from collections.abc import Callable; from penstock_cdc import Change, ChangeLog, Position",
        {"log": "ChangeLog", "position": "Position", "apply": "Callable[[Change], None]"},
    ),
    "docs/from-your-database.md": (
        (
            "import sqlite3; from collections.abc import Callable; from penstock_cdc import ChangeLog, Mutation, Outbox;"
            " from penstock_cdc.spark import debezium; from pyspark.sql import DataFrame, SparkSession;"
            " from sqlalchemy import Connection, Engine"
        ),
        {
            "change": "Callable[..., Mutation]",
            "tables": "Callable[[Engine, Outbox], None]",
            "put_order": "Callable[[Connection, Outbox, str, str], int]",
            "delete_order": "Callable[[Connection, Outbox, str], int]",
        },
    ),
    "docs/monitoring.md": ("from penstock_cdc import ChangeLog, upsert", {"log": "ChangeLog"}),
    "docs/operating.md": (
        (
            "from concurrent.futures import ProcessPoolExecutor;"
            " from multiprocessing import get_context; from penstock_cdc import ChangeLog, ChangeStore, Position"
        ),
        {"log": "ChangeLog", "path": "str", "position": "Position"},
    ),
    "docs/resp.md": ("from penstock_cdc import ChangeLog", {"log": "ChangeLog"}),
    "docs/retention.md": (
        "from collections.abc import Callable; from penstock_cdc import ChangeLog, Criterion, Position; from penstock_cdc.types import Hold",
        {
            "log": "ChangeLog",
            "position": "Position",
            "kept": "str",
            "criteria": "Criterion",
            "save": "Callable[[], None]",
            "subscription": "Hold",  # it has a position too
        },
    ),
    "docs/security.md": (
        "from typing import Any; from penstock_cdc import ChangeStore",
        {"sessions": "Any", "store": "ChangeStore"},
    ),
    "docs/spark.md": (
        "from pyspark.sql import DataFrame\nfrom penstock_cdc.flow import Subscriber\nfrom penstock_cdc import Change",
        {"stream": "DataFrame", "totals": "Subscriber[Change]"},
    ),
    "docs/tck.md": (
        "from collections.abc import Callable; from penstock_cdc.flow import Publisher",
        {"my_publisher": "Callable[..., Publisher[int]]"},
    ),
    "docs/testing.md": (
        (
            "import asyncio; from collections.abc import Callable, Coroutine, Iterator; from pathlib import Path;"
            " from typing import Any; import pytest; from penstock_cdc import ChangeLog, Content, Criterion;"
            " from penstock_cdc.testing import collect"
        ),
        {"place_order": "Callable[[ChangeLog, str, str], Coroutine[Any, Any, int]]"},
    ),
    "docs/sinks.md": (
        "from collections.abc import Callable; from penstock_cdc import ChangeLog",
        {"log": "ChangeLog", "send": "Callable[[str, bytes | None], bool]"},
    ),
    "docs/views.md": ("from penstock_cdc.types import Authenticator", {"check": "Authenticator"}),
}
SHOWN = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
WRITTEN = sorted(str(program.relative_to(ROOT)) for program in ROOT.glob("examples/*.py"))
CHECKED = {"mypy": [*SHOWN, *WRITTEN], "pyright": [*SHOWN, *WRITTEN] if LONG else ["README.md"]}
"""What each checker reads beside the two programs of this folder: pyright takes ten times as long for all of it."""

# A page may leave the types of its own functions to the reader. Then nothing is known of their arguments, and pyright would
# complain of each use of one.
LOOSE = """
# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""
UNASKED = "mutable-override"
"""What the project asks of itself, and --strict of no user: that what may be set has the same type in a subclass."""

# With the options of the project, which are stricter than --strict: what `make lint` has found of the packages is known then.
MYPY = [f"--config-file={ROOT / 'pyproject.toml'}", "--output=json"]
PYRIGHT = {
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "extraPaths": [str(ROOT), str(ROOT / "examples" / "flights")],
    "reportDeprecated": "none",
    "reportMissingTypeStubs": "none",
    "reportPrivateUsage": "none",
    "reportUnusedExpression": "none",  # a page shows what there is to look at
    "reportUnusedFunction": "none",
    "reportUnnecessaryComparison": "none",  # against those who have no type checker
}


def annotated(program):
    """Whether every function says its types."""
    functions = (
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return all(
        function.returns is not None
        and all(
            one.annotation or one.arg == "self" for one in ast.walk(function.args) if isinstance(one, ast.arg)
        )
        for function in functions
    )


def program_of(page):
    """Its programs, one after the other, in the lines in which they stand on the page."""
    imports, types = GIVEN.get(page, ("", {}))
    given = [f"{name} = cast({kind!r}, object())" for name, kind in types.items()]
    lines = ["; ".join(["from typing import cast", imports, *given]) if given else ""]
    inside = False
    for line in (ROOT / page).read_text().splitlines()[1:]:
        lines.append(line if inside and line != "```" else "")
        inside = line.startswith("```python") or (inside and line != "```")
    program = "\n".join(lines) + "\n"
    return program if annotated(program) else program + LOOSE


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of each checker what it finds, by the file and line; each is started once, for everything."""
    folder = tmp_path_factory.mktemp("typing")
    names = {}
    for page in SHOWN:
        name = page.removesuffix(".md").replace("/", "_").replace("-", "_").lower() + "_page.py"
        names[name] = page
        (folder / name).write_text(program_of(page))
    for program in (*WRITTEN, "tests/typing/inference.py", "tests/typing/mistakes.py"):
        names[Path(program).name] = program
        shutil.copy(ROOT / program, folder)
    own = {"tests/typing/inference.py", "tests/typing/mistakes.py"}
    read = [name for name, place in names.items() if place in {*CHECKED["pyright"], *own}]
    (folder / "pyrightconfig.json").write_text(json.dumps({**PYRIGHT, "include": read}))

    def started(directory, *command):
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=directory,
            env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with (
        started(folder, "pyright", "--outputjson", "--pythonpath", sys.executable) as pyright,
        started(ROOT, "mypy", *MYPY, *(str(folder / name) for name in names)) as mypy,
    ):
        told, complaint = mypy.communicate(timeout=240)
        assert mypy.returncode in {0, 1}, complaint + told
        by_mypy = [json.loads(line) for line in told.splitlines()]
        told, complaint = pyright.communicate(timeout=240)
        assert pyright.returncode in {0, 1}, complaint + told
        by_pyright = json.loads(told)["generalDiagnostics"]
    errors = {"mypy": {}, "pyright": {}}
    for one in by_mypy:
        if one["severity"] == "error" and one["code"] != UNASKED:
            place = names.get(Path(one["file"]).name, one["file"])
            errors["mypy"].setdefault(place, []).append((one["line"], one["message"]))
    for one in by_pyright:
        place = names.get(Path(one["file"]).name, one["file"])
        errors["pyright"].setdefault(place, []).append((one["range"]["start"]["line"] + 1, one["message"]))
    return errors


@pytest.mark.parametrize(("checker", "place"), [(name, place) for name in CHECKED for place in CHECKED[name]])
def test_what_is_shown_to_users_has_the_types_that_it_seems_to_have(found, checker, place):
    assert found[checker].get(place, []) == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_lambdas_bodies_and_cursors_are_inferred(found, checker):
    assert found[checker].get("tests/typing/inference.py", []) == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_mistakes_are_found_where_they_are(found, checker):
    program = (HERE / "mistakes.py").read_text().splitlines()
    marks = ("# mistake", f"# mistake to {checker}")
    made = {number for number, line in enumerate(program, 1) if line.endswith(marks)}
    assert {number for number, _ in found[checker].get("tests/typing/mistakes.py", [])} == made


def test_no_checker_finds_a_mistake_in_the_packages_themselves(found):
    places = {*SHOWN, *WRITTEN, "tests/typing/inference.py", "tests/typing/mistakes.py"}
    assert {place for errors in found.values() for place in errors} <= places
