"""Every promise has a test, and the table of features says what the tests show."""

import textwrap

from tests.harness import promises


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


def test_a_mark_is_set_and_never_taken_away():
    table = "| F1 | one |  |\n| F2 | two | yes |\n| F3 | three |  |\n"
    assert (
        promises.marked(table, frozenset({"F1"}))
        == "| F1 | one | yes |\n| F2 | two | yes |\n| F3 | three |  |\n"
    )
