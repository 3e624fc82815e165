"""A promise is held if the faults that were planted against it are noticed by the tests that name it.

``python -m tests.mutants planted`` plants all of them one by one; per commit it is a sample, planted at once in one copy.
"""

import ast

import pytest

from tests.harness.promises import ROOT, TABLE, all_tests, marks
from tests.mutants.patching import Stale
from tests.mutants.planted.fault import Fault, Workshop
from tests.mutants.planted.table import ELSEWHERE, EQUIVALENT, FAULTS

SAMPLE = ("F16", "F56", "F87", "F97", "F138")
"""Rows with a few quick tests, whose faults are in different files."""


def working():
    return {row for row, mark in marks(TABLE.read_text()).items() if mark}


def test_each_fault_is_one_of_the_code_as_it_is():
    texts = {path: (ROOT / path).read_text() for path in {fault.path for fault in FAULTS}}
    assert [str(fault) for fault in FAULTS if fault.changed(texts[fault.path]) == texts[fault.path]] == []
    assert {fault.row for fault in FAULTS} <= working()
    named = frozenset().union(*(test.ids for test in all_tests()))
    assert {fault.row for fault in FAULTS} <= named


def test_every_promise_has_a_fault_that_tests_must_notice():
    """Those for which other mutants are planted are told with the place of these."""
    planted = {fault.row for fault in FAULTS if fault not in EQUIVALENT}
    assert not planted & ELSEWHERE.keys()
    assert working() - planted == ELSEWHERE.keys()
    assert set(EQUIVALENT) <= set(FAULTS)
    assert len(FAULTS) == len(set(map(str, FAULTS))) >= 88


def test_a_fault_whose_code_has_moved_on_is_told():
    fault = Fault("F1", "flow/demand.py", "no such text", "", "nothing")
    with pytest.raises(Stale, match="0 times"):
        fault.changed((ROOT / fault.path).read_text())
    with pytest.raises(SyntaxError):
        Fault("F1", "flow/demand.py", "import", "imp ort", "nothing").changed("import x")
    assert ast.parse((ROOT / fault.path).read_text())


def test_a_sample_of_faults_is_noticed(tmp_path):
    faults = [next(fault for fault in FAULTS if fault.row == row) for row in SAMPLE]
    assert len({fault.path for fault in faults}) == len(faults)
    noticed = Workshop(tmp_path / "copy").noticed(faults)
    assert [row for row in SAMPLE if row not in noticed] == []
