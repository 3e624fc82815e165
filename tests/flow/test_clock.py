import time

from flow import SYSTEM_CLOCK, Clock


def test_the_system_clock_tells_durations_and_time_stamps():
    clock: Clock = SYSTEM_CLOCK
    assert clock.monotonic() <= clock.monotonic()
    before = time.time_ns() // 1000
    assert before <= clock.now_us() <= time.time_ns() // 1000
