"""Audits a built wheel: it holds the files of the repository that belong into it, unchanged, and nothing else.

``python -m tests.harness.wheel dist/penstock_cdc-*.whl`` prints what is wrong, and fails if anything is.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


def wanted() -> dict[str, Path]:
    """The files that belong into the wheel, by their names there."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        target = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *target["packages"]],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    found = {}
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not any(name.startswith(f"{one}/") for one in target["exclude"]):
            package = next(one for one in target["packages"] if name.startswith(f"{one}/"))
            found[f"{Path(package).name}/{Path(name).relative_to(package)}"] = ROOT / name
    return found


def audit(path: Path) -> Iterator[str]:
    """Yields what is wrong with a wheel."""
    files = wanted()
    with ZipFile(path) as wheel:
        names = wheel.namelist()
        about = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        expected = set(files) | {f"{one}/{name}" for one in about for name in ABOUT}
        for name in sorted(set(names) - expected):
            yield f"{name} does not belong into the wheel"
        for name in sorted(expected - set(names)):
            yield f"{name} is not in the wheel"
        for name in sorted(files.keys() & set(names)):
            if wheel.read(name) != files[name].read_bytes():
                yield f"{name} is not the file of the repository"
        if len(names) != len(set(names)):
            yield "a name is in the wheel twice"
        if len(about) != 1:
            yield f"there is not one directory .dist-info, but {len(about)}"
        for info in wheel.infolist():
            if (kind := info.external_attr >> 28) not in (0, 8):
                yield f"{info.filename} is no regular file, but of kind {kind:o}"
        for one in about:
            metadata = message_from_bytes(wheel.read(f"{one}/METADATA"))
            for needed in metadata.get_all("Requires-Dist", []):
                if "@" in needed:
                    yield f"it needs {needed}, which is an address and not a version"


if __name__ == "__main__":
    problems = [problem for each in sys.argv[1:] for problem in audit(Path(each))]
    sys.exit("\n".join(problems) or None if sys.argv[1:] else "say which wheel")
