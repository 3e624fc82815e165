"""Each test has a tier, and does nothing that its tier forbids."""

import re
import sys
from pathlib import Path

import pytest

from tests.harness import tiers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("entry", [entry for entries in tiers.TABLE.values() for entry in entries])
def test_the_table_names_what_there_is(entry):
    path, *names = entry.partition("[")[0].split("::")
    assert (ROOT / path).exists(), f"{path} is gone: take it out of tests/harness/tiers.py"
    text = (ROOT / path).read_text() if names else ""
    for name in names[:1]:
        assert re.search(rf"\b{name}\b", text), f"{entry} is gone: take it out of tests/harness/tiers.py"


def test_the_table_says_nothing_twice():
    for tier, entries in tiers.TABLE.items():
        for entry in entries:
            if entry.endswith("]"):
                continue
            above = entry.rpartition("::" if "::" in entry else "/")[0]
            assert tiers.tier_of(above) != tier, f"{entry} is {tier} already"


def test_the_longest_entry_counts():
    assert tiers.tier_of("tests/flow/test_sources.py::test_a[b::c/d]") == "fast"
    assert tiers.tier_of("tests/transports/tcp/test_sockets.py::test_a") == "wire"
    assert (
        tiers.tier_of("tests/transports/cli/test_tail.py::test_tail_is_interrupted_quietly[1]") == "process"
    )
    assert tiers.tiers_in("tests/transports/cli/test_tail.py") == {"wire", "process"}
    assert tiers.tiers_in("tests/flow/test_sources.py") == {"fast"}
    assert tiers.tier_of("tests/contracts/test_groups.py::test_a[websocket]") == "wire"
    assert tiers.tier_of("tests/contracts/test_groups.py::test_a[in-process:1]") == "fast"
    assert tiers.tiers_in("tests/contracts/test_groups.py") == {"fast", "wire", "process"}


@pytest.mark.parametrize(
    ("test", "deeds", "seconds", "expected"),
    [
        (
            "tests/flow/test_sources.py::test_a[1]",
            {"wire": "bound a socket"},
            0.0,
            "bound a socket: .* 'wire'",
        ),
        (
            "tests/flow/test_sources.py::test_a",
            {"wire": "", "process": "forked"},
            0.0,
            "has forked: .* 'process'",
        ),
        (
            "tests/transports/tcp/test_sockets.py::test_a",
            {"process": "forked"},
            0.0,
            "has forked: .* 'process'",
        ),
        ("tests/transports/tcp/test_sockets.py::test_a", {"wire": "bound a socket"}, 5.9, None),
        ("tests/transports/tcp/test_sockets.py::test_a", {}, 10.1, "used 10.1 s of CPU and may use 2.0 s"),
        ("tests/flow/test_sources.py::test_a", {}, 1.4, None),
        ("tests/flow/test_sources.py::test_a", {}, 2.6, "used 2.6 s of CPU and may use 0.5 s"),
        ("tests/crash/test_kill.py::test_a", {"wire": "", "process": ""}, 99.0, None),
    ],
)
def test_what_a_tier_forbids_is_told_in_one_sentence(test, deeds, seconds, expected):
    told = tiers.complaint(test, deeds, seconds)
    if expected is None:
        assert told is None
    else:
        assert re.search(expected, told)
        assert "tests/harness/tiers.py" in told


def test_sockets_and_processes_are_heard():
    sys.audit("socket.bind", None, b"\0a datagram socket of a log")
    assert not tiers._deeds
    sys.audit("socket.connect", None, ("127.0.0.1", 1))
    assert tiers._deeds == {"wire": "connected a socket"}
    sys.audit("os.fork")
    assert tiers._deeds["process"] == "forked"
    tiers._deeds.clear()  # this test is a fast one
