"""What runs JavaScript: the Node of this machine and those that npm brings, with the packages of the lock file."""

import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["NODES", "install", "node_place", "nodes"]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
NODES: Final = (20, 22, 24)
"""The versions of Node that penstock.js is tried with."""
_BROUGHT: Final = HERE / "node_modules" / ".nodes"
_ARCHITECTURES: Final = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def install() -> None:
    """Installs the packages of the lock file, unless they are there."""
    installed = HERE / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (HERE / "package-lock.json").stat().st_mtime:
        _npm("ci", "--ignore-scripts", cwd=HERE)


def node_place(place: Path) -> Path:
    """Makes a directory in which Node finds the packages, the scripts of tests and of examples, and penstock.js."""
    install()
    place.mkdir(exist_ok=True)
    (place / "node_modules").symlink_to(HERE / "node_modules")
    (place / "package.json").write_text('{"type": "module"}')
    browser = ROOT / "transports" / "browser" / "penstock.js"
    hook = ROOT / "examples" / "browser" / "use_live_map.js"
    for script in (*HERE.glob("*.mjs"), *(ROOT / "examples").glob("*.mjs"), browser, hook):
        shutil.copy(script, place)
    return place


def nodes(*, bring: bool = True) -> dict[int, Path]:
    """Returns the Node that this machine has by its version, and with ``bring`` those that npm brings."""
    found = {}
    own = shutil.which("node")
    if own is not None:
        version = subprocess.run([own, "--version"], capture_output=True, text=True, check=True).stdout
        found[int(version.lstrip("v").partition(".")[0])] = Path(own)
    for version in NODES if bring else ():
        if version not in found and (brought := _bring(version)) is not None:
            found[version] = brought
    return dict(sorted(found.items()))


def _bring(version: int) -> Path | None:
    package = f"node-{platform.system().lower()}-{_ARCHITECTURES.get(platform.machine())}"
    place = _BROUGHT / str(version)
    program = place / "node_modules" / package / "bin" / "node"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        try:
            _npm("install", "--no-save", "--prefix", str(place), f"{package}@{version}", cwd=place)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            return None
    return program if program.exists() else None


def _npm(*arguments: str, cwd: Path) -> None:
    command = ["npm", *arguments, "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
