"""What pages and README say of programs, files and names is so."""

import ast
import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = [
    path
    for folder in ("flow", "penstock_cdc", "publishers", "transports", "examples", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".mjs", ".js")
]


INTERNAL = {"CHANGELOG", "CONTRIBUTING", "architecture", "benchmarks", "histories", "history", "proof"}
"""Pages for those who work on the code, or on what it was; so are the decisions."""

OURS = {
    "examples/flights/penstock_flights/command.py": {"transports.cli.arguments"},  # it is a command of ours
    "examples/flights/penstock_flights/stream.py": {
        "publishers.spark.schema"
    },  # it checks what a sink encodes
}


def blocks(page, language):
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def anchors(page):
    """The names that headings of a page are linked by."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_document_that_a_reader_does_not_have(page):
    for name in re.findall(r"`(?!build/)([\w./-]+\.md)`", page.read_text()):
        assert any((place / name).exists() for place in (ROOT, ROOT / "docs")), name


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.stem not in INTERNAL and page.parent.name != "decisions"],
    ids=lambda page: page.name,
)
def test_a_page_for_users_names_one_package_to_import(page):
    text = page.read_text()
    assert re.findall(r"^ *(?:from|import) (?:flow|publishers|transports)\b.*", text, re.MULTILINE) == []
    assert re.findall(r"\b(?:publishers|transports)[.:]\w+", re.sub(r"`tests/.*?`", "", text)) == []


@pytest.mark.parametrize("program", sorted(ROOT.glob("examples/**/*.py")), ids=lambda program: program.name)
def test_an_example_imports_one_package(program):
    found = set()
    for node in ast.walk(ast.parse(program.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):  # for `importlib`
            names += re.findall(r"^(?:publishers|transports)(?:\.\w+)+$", node.value)
        found |= {name for name in names if name.partition(".")[0] in ("flow", "publishers", "transports")}
    assert found == OURS.get(str(program.relative_to(ROOT)), set())


def test_the_changelog_has_one_line_a_thing_under_added_changed_and_fixed():
    text = (ROOT / "CHANGELOG.md").read_text()
    (release, *_) = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    headings = re.findall(r"^### (.*)$", release, re.MULTILINE)
    assert headings == [kind for kind in ("Added", "Changed", "Fixed") if kind in headings] != []
    assert all(line.startswith(("- ", "#")) for line in release.splitlines()[1:] if line)


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("docs/from-your-database.md", ["outbox.py", "polling_query.py", "from_debezium.py"]),
        ("docs/testing.md", ["test_orders.py"]),
    ],
)
def test_what_a_page_shows_of_an_example_is_in_it(page, example):
    programs = [(ROOT / "examples" / name).read_text() for name in example]
    shown = blocks(page, "python")
    assert len(shown) == len(programs)
    for block, program in zip(shown, programs, strict=True):
        assert block in program


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5])
def test_state_and_changes_meet_as_the_page_shows(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(blocks("docs/initial-state.md", "python")[number], "initial-state.md", "exec"), {})
    assert printed.getvalue() == blocks("docs/initial-state.md", "")[number]


def test_what_is_said_to_be_installed_is_this_distribution_and_has_the_extras():
    told = [
        text for path in [*SOURCES, *PAGES] for text in re.findall(r"pip install ([^\n`]+)", path.read_text())
    ]
    told += [
        "'.[" + extras + "]'" for extras in re.findall(r"'\.\[([\w,]+)\]'", (ROOT / "README.md").read_text())
    ]
    named = 0
    for text in told:
        assert not re.search(r"\bpenstock(?!-cdc)\b", text), text
        for extras in re.findall(r"(?:penstock-cdc|\.)\[([\w,]+)\]", text):
            named += 1
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), text
    assert named > 5
    assert PROJECT["name"] == "penstock-cdc"


def test_each_logger_is_below_penstock_or_flow_and_is_on_the_page():
    """A program that configures the two has all lines, and its operator knows what each is about."""
    page = (ROOT / "docs/monitoring.md").read_text()
    for path in SOURCES:
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ("flow", "publishers", "transports"):
            for name in re.findall(r"getLogger\(([^)]+)\)", path.read_text()):
                if name in ("name", "ACCESS"):  # of each of the two, and below penstock
                    continue
                assert re.fullmatch(r'"(penstock|flow)[a-z.]*"', name), path
                assert any(f"`{above}`" in page for above in _above(name.strip('"'))), (path, name)


def _above(name):
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(min(2, len(parts)), len(parts) + 1)]
