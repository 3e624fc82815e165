"""A sample of the soak; long: ``python -m tests.soak``, also with ``--commits``, ``--clients`` and ``--door``."""

import shutil
from dataclasses import replace

import pytest

from tests.harness.missing import skip_without
from tests.harness.scale import LONG, SCALE
from tests.history.run import play as judged
from tests.soak.clients import LIMIT
from tests.soak.clients import play as beside_kills
from tests.soak.commits import POLICIES, SCENES
from tests.soak.door import Plan as Siege
from tests.soak.door import play as siege
from tests.soak.run import Plan, play

LONG_ONLY = pytest.mark.skipif(not LONG, reason="starts a dozen processes: PENSTOCK_TEST_SCALE=2")


def test_honest_clients_are_exact_beside_slow_stalled_and_hostile_ones():
    """E59, F66, F68, F140, F145, F147: LIVE clients are never cut off, slow ones catch up, what is acknowledged is there once."""
    few = {"live": 10, "slow": 2, "stalled": 2, "hostile": 3, "appending": 4, "leaving": 2}
    report = play(Plan(**few, pace=5.0, seconds=1.0, attacks=11))
    assert report.end["faults"] == []
    assert report.end["cut"] == {"live": 0, "slow": 0}
    assert report.ended["STALLED"] >= 1
    assert report.left == ["FORBIDDEN"]
    assert report.lost == []
    assert report.appended > 20
    assert sum(report.end["attacks"].values()) > 10


def test_a_few_of_each_kind_at_the_door_change_nothing_that_can_be_counted():
    """F147: honest clients are exact, figures within their bounds, attackers charged, and all is as before when they have gone.

    Times are not judged. Costs eight seconds of CPU time: a server, its clients and the attackers are processes of their own.
    """
    few = {"silent": 6, "drips": 6, "floods": 4, "storms": 4, "unread": 3, "bombs": 7}
    report = siege(
        Siege(
            live=20,
            appending=4,
            **few,
            pause=1.0,
            seeds=2_000,
            rounds=1,
            seconds=3.0,
            control=0.0,
            leaving=300.0,
            resident=256,
        )
    )
    assert report.faults == []
    assert report.made.keys() == few.keys()
    assert report.appended > 20
    assert report.payers.keys() >= {"eve", "127.0.0.2"}
    assert report.payers["eve"] > report.payers.get("writer", 0.0)
    assert not report.lines


@LONG_ONLY
def test_a_door_that_is_besieged_lets_honest_clients_through():
    """F147: nobody is cut off, every figure stays within its bound, and all is as before when the attackers have gone."""
    few = {"silent": 10, "drips": 10, "floods": 5, "storms": 5, "unread": 5, "bombs": 14}
    report = siege(
        Siege(live=40, appending=5, **few, pause=1.0, seeds=2_000, rounds=1, seconds=60.0, resident=256)
    )
    assert report.faults == []
    assert report.made.keys() == few.keys()
    assert report.appended > 20
    assert report.most["penstock_expect_scanned_bytes_total"] > 0
    assert not report.lines


@pytest.mark.crash
@pytest.mark.parametrize(
    ("scene", "sync"),
    [*(("late callers", sync) for sync in (POLICIES if LONG else ("always",))), ("everything", "always")],
)
def test_commits_of_every_kind_at_once_are_there_once_each_at_its_version(scene, sync, capsys):
    """T12, F36, F39, F145: callers beside submissions, then all that commits, reads and tidies; nothing raises, and nothing hangs."""
    with capsys.disabled():
        plan = replace(SCENES[scene], seconds=2 * SCALE, sync=sync, acknowledged=101)
        # Processes start one by one, so that everything takes longer than that: at a pace that can be judged quickly.
        report = judged(33, replace(plan, pace=0.03) if scene == "everything" else plan)
    assert not report.violations, report.violations[:5]
    assert report.counts["acknowledged"] > 100
    if scene == "everything":
        assert report.counts["given to a group"] > 10
        assert report.counts["entities"] > 100


@LONG_ONLY
@pytest.mark.crash
def test_clients_in_javascript_and_python_get_each_change_once_over_kills_of_the_server():
    """E4: three kills, without a silence of ten seconds in the time in which the server could be reached.

    Costs six seconds of CPU time: ``penstock serve`` starts four times.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        skip_without("Node with npm")
    python, node = beside_kills("kills", kills=3, few=True)
    for client in (python, node):
        assert client.faults == []
        assert client.deliveries > 30
        assert sum(client.lost.values()) >= 1
        assert client.longest < LIMIT
