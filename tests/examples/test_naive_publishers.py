"""What one writes first breaks the rules that the guide to the kit names."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "tck.md").read_text()

pytest.importorskip("reactivex")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(
        "naive_publishers", ROOT / "examples" / "naive_publishers.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "make"), [("NaiveBridge` on", "bridge"), ("Broadcaster` with", "broadcaster")]
)
def test_the_guide_names_what_it_breaks(example, name, make):
    told = re.search(rf"\* `{re.escape(name)}.*?(?=\n\n|\n\*)", GUIDE, re.DOTALL).group()
    rules = set(re.findall(r"\*\*(\d\.\d+)\*\*", told))
    assert len(rules) > 5
    assert rules <= set(example.broken_rules(getattr(example, make)))
