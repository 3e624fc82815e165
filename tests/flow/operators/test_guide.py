"""The guide to demand does what it says."""

import contextlib
import io
import re
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "demand.md"

PRINTED = """\
got a
got b
got c
done
[0, 1, 2]
3
3
3
tick 0
tick 1
[0, 1]
0
4
16
[4]
rows [10]
rows [20, 30]
done
[8, 6, 6, 6]
['a', 'b', 'c']
['d']
[0, 1, 2, 3]
got 4
got 5
done
5
missed 1
got B
got C
contents
dropped ValueError('not 2')
got 1
got 2
got 3
"""


def test_the_blocks_of_the_guide_run_one_after_the_other_and_print_what_stands_beside():
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    names = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "demand.md", "exec"), names)
    assert printed.getvalue() == PRINTED


def test_what_is_printed_stands_beside_what_prints_it():
    comments = re.findall(r"  # (.*)$", GUIDE.read_text(), re.MULTILINE)
    told = ", ".join(comments).replace("failed:", "")
    assert told == ", ".join(PRINTED.splitlines())
