"""A sample of the soak; long: ``python -m tests.soak``."""

from tests.soak.run import Plan, play


def test_honest_clients_are_exact_beside_slow_stalled_and_hostile_ones():
    """E59, F66, F68, F140, F145, F147: LIVE clients are never cut off, slow ones catch up, what is acknowledged is there once."""
    few = {"live": 20, "slow": 5, "stalled": 5, "hostile": 5, "appending": 4, "leaving": 3}
    report = play(Plan(**few, pace=5.0, seconds=2.0, attacks=11))
    assert report.end["faults"] == []
    assert report.end["cut"] == {"live": 0, "slow": 0}
    assert report.ended["STALLED"] >= 1
    assert report.left == ["FORBIDDEN"]
    assert report.lost == []
    assert report.appended > 20
    assert sum(report.end["attacks"].values()) > 10
