"""Every promise has a test, and the table of features says what the tests show."""

import subprocess
import sys
import textwrap

import pytest

from tests.harness import promises
from tests.harness.constants import set_constant


def test_every_promise_of_the_readme_is_held_by_tests_with_assertions():
    known = promises.all_tests()
    made = promises.promises()
    assert len(made) >= 7
    for promise, places in made.items():
        for place in places:
            holding = [test for test in known if test.path.startswith(place)]
            assert sum(test.assertions for test in holding) > 0, f"{place} holds nothing of: {promise}"
        assert places, f"no tests are named for: {promise}"


def test_every_row_that_works_has_a_test_and_every_row_with_a_test_is_marked():
    text = promises.TABLE.read_text()
    named = frozenset().union(*(test.ids for test in promises.all_tests()))
    lost = [row for row, mark in promises.marks(text).items() if mark and row not in named]
    assert lost == [], (
        f"{lost} lost their last test; only if that is meant, take the mark out of docs/features.md"
    )
    assert text == promises.marked(text, named), "run: make promises ARGS=--mark"


def test_a_row_is_named_by_a_test_by_its_class_or_by_its_module(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        textwrap.dedent('''
            """Of F1."""
            def helper(x):
                assert x
                helper(x - 1)
            def test_a():
                """F2."""
                helper(1)
                with pytest.raises(ValueError):
                    assert 1
            class TestB:
                """F3."""
                @pytest.mark.parametrize("x", ["F4"])
                def test_c(self, x): ...
            class TestKit(Kit):
                """E5."""
            ''')
    )
    found = {test.name: (set(test.ids), test.assertions) for test in promises.all_tests(tmp_path)}
    assert found == {
        "test_a": ({"F1", "F2"}, 3),
        "TestB.test_c": ({"F1", "F3", "F4"}, 0),
        "TestKit": ({"F1", "E5"}, 0),
    }


def test_a_row_is_held_by_the_tests_that_passed_and_by_no_skipped_or_failed_one(
    tmp_path, monkeypatch, capsys
):
    """Also with parameters, in classes, and where a whole module was skipped."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        textwrap.dedent('''
            import pytest
            class Kit:
                def test_inherited(self): ...
            @pytest.mark.parametrize("n", [1, 2])
            def test_a(n):
                """F1."""
                if n == 1:
                    pytest.skip("no server")
            @pytest.mark.skip
            def test_b():
                """F2."""
            def test_c():
                """F3."""
                assert 0
            class TestKit(Kit):
                """F4."""
            class TestOther:
                @pytest.mark.skip
                def test_d(self):
                    """F5."""
                def test_e(self):
                    """F6."""
            ''')
    )
    (tmp_path / "tests" / "test_two.py").write_text(
        "import pytest\npytest.skip('no server', allow_module_level=True)\ndef test_f():\n    'F7.'\n"
    )
    (tmp_path / "results").mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    command += ["--rootdir", tmp_path, f"--junit-xml={tmp_path / 'results' / 'a.xml'}", tmp_path / "tests"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    cases = promises.passed((tmp_path / "results").iterdir())
    known = promises.all_tests(tmp_path)
    held = {row for test in known if test.passed(cases) for row in test.ids}
    assert held == {"F1", "F4", "F6"}
    (tmp_path / "table.md").write_text("".join(f"| F{n} | it works | yes |\n" for n in range(1, 8)))
    set_constant(monkeypatch, promises, "TABLE", tmp_path / "table.md")
    set_constant(monkeypatch, promises, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(promises, "promises", dict)
    monkeypatch.setattr(promises, "all_tests", lambda: known)
    monkeypatch.setattr(sys, "argv", ["promises"])
    with pytest.raises(SystemExit, match="4 promises are not held"):
        promises.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines if line.endswith("NOT HELD")] == ["F2", "F3", "F5", "F7"]
    (tmp_path / "results" / "a.xml").unlink()
    promises.main()


def test_a_mark_is_set_and_never_taken_away():
    table = "| F1 | one |  |\n| F2 | two | yes |\n| F3 | three |  |\n"
    assert (
        promises.marked(table, frozenset({"F1"}))
        == "| F1 | one | yes |\n| F2 | two | yes |\n| F3 | three |  |\n"
    )
