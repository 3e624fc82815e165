"""Complaints of asyncio's debug mode fail the test that caused them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARELESS = """
import asyncio, gc, threading, time

async def test_tidy():
    asyncio.get_running_loop().call_soon(time.sleep, 0.2)  # slow, which is nobody's fault on a busy machine
    await asyncio.sleep(0)

async def test_foreign_thread():
    loop, found = asyncio.get_running_loop(), []
    def call():
        try:
            loop.call_soon(int)
        except RuntimeError as error:
            found.append(error)
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert not found

async def test_nobody_takes_the_result():
    task = asyncio.ensure_future(asyncio.to_thread(int, "x"))
    await asyncio.wait([task])
    del task
    gc.collect()
"""


def test_what_is_silent_without_debug_mode_is_an_error_in_the_suites_of_coroutines_only(tmp_path):
    """T15: calls from foreign threads, unretrieved results."""
    inside, outside = tmp_path / "tests/transports/server/test_uvicorn.py", tmp_path / "test_other.py"
    inside.parent.mkdir(parents=True)
    inside.write_text(CARELESS)
    outside.write_text(CARELESS)
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "tests.harness.debugging",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:faker",
            ),
            *("-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    wrong = sorted(re.findall(r"^(?:FAILED|ERROR) \S+?(test_\w+\.py::\w+)", done.stdout, re.MULTILINE))
    expected = ["test_uvicorn.py::test_foreign_thread", "test_uvicorn.py::test_nobody_takes_the_result"]
    assert wrong == expected, done.stdout
