"""A sample of the soak; long: ``python -m tests.soak``."""

from tests.soak.run import Plan, play


def test_honest_clients_are_exact_beside_slow_stalled_and_hostile_ones():
    """E59, F66, F68, F140, F145, F147: LIVE clients are never cut off, slow ones catch up, what is acknowledged is there once."""
    report = play(Plan(live=20, slow=5, stalled=5, hostile=5, appending=4, leaving=3, pace=5.0, seconds=4.0))
    assert report.end["faults"] == []
    assert report.end["cut"] == {"live": 0, "slow": 0}
    assert report.ended["STALLED"] >= 1
    assert report.left == ["FORBIDDEN"]
    assert report.lost == []
    assert report.appended > 20
    assert sum(report.end["attacks"].values()) > 10
