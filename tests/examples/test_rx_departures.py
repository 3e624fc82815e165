import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).parent.parent.parent

PRINTED = """\
UA +2.0 min over 1 | AA -1.0 min over 1 | UA +3.0 min over 2
AA +15.0 min over 2 | UA +2.0 min over 3 | B6 +12.0 min over 1
B6 +30.0 min over 2 | AA +10.0 min over 3 | UA +7.5 min over 4
10 departures in 3 micro-batches
"""


@pytest.mark.spark
def test_the_example_prints_the_running_means_and_exits():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "rx_departures.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == PRINTED
