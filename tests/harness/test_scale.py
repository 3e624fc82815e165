"""What runs as a sample in each commit runs in full somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_random_test_runs_in_full_in_a_part_of_make_prove():
    make = (ROOT / "Makefile").read_text()
    short = re.findall(r"^PROVE_\w+ := ((?:.*\\\n)*.*)$", make, re.MULTILINE)
    places = [f"tests/publishers/{name}" for names in short for name in names.replace("\\", " ").split()]
    commands = re.findall(r"^\t(?:\$\(FULLY\)|PENSTOCK_TEST_SCALE=).*$", make, re.MULTILINE)
    places += re.findall(r"(?<![=\w])tests/\S+", "\n".join(commands))
    assert len(places) > 40
    random = re.compile(r"^from (tests\.harness\.scale|hypothesis) import", re.MULTILINE)
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = str(path.relative_to(ROOT))
        if not name.startswith("tests/soak/") and random.search(
            path.read_text()
        ):  # which `make soak` runs for as long as one likes
            assert any(name == place or name.startswith(place + "/") for place in places), (
                f"{name}: see PROVE in Makefile"
            )


def test_the_table_of_what_to_run_names_each_part_of_make_prove_and_no_other_target():
    make = (ROOT / "Makefile").read_text()
    parts = re.search(r"^PROVE := (.*)$", make, re.MULTILINE)[1].split()
    assert {f"prove-{part}" for part in parts} <= set(re.findall(r"^(prove-\w+):", make, re.MULTILINE))
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page[page.index("| touched | run |") :].partition("\n\n")[0]
    named = set(re.findall(r"`make ([\w-]+)`", table))
    assert {f"prove-{part}" for part in parts} == {one for one in named if one.startswith("prove-")}
    assert named <= set(re.findall(r"^([\w-]+):", make, re.MULTILINE))
