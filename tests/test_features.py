"""The table of features says what the tests show."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_marks_in_the_feature_table_are_up_to_date():
    done = subprocess.run([sys.executable, DOCS / "features.py", "--check"], check=False)
    assert done.returncode == 0, "run python docs/features.py"
