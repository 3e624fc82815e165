from penstock_flights.progress import RateMeter


def test_a_rate_is_taken_over_the_last_three_seconds():
    meter = RateMeter()
    assert meter.read(0.0, 0) == 0.0
    assert meter.read(1.0, 100) == 100.0
    for second in range(2, 10):
        meter.read(float(second), 100 + (second - 1) * 1000)
    assert meter.read(10.0, 9100) == 1000.0


def test_a_rate_fades_when_nothing_comes():
    meter = RateMeter()
    meter.read(0.0, 0)
    meter.read(1.0, 900)
    assert meter.read(3.0, 900) == 300.0
    assert meter.read(4.0, 900) == 0.0
