"""What answers in the place of a broker as none does."""

import struct

import pytest

from tests.publishers.support import wait_until
from tests.transports.sinks.liars import Liar, closes, drips, endless, says, silent
from tests.transports.sinks.targets import GoingClock, rigged
from transports.sinks import SinkState
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink


class Broker:
    """Answers each request with a lie."""

    def __init__(self, lie):
        self.lie, self.asked = lie, 0

    def __call__(self, liar, connection):
        with connection.makefile("rb") as reader:
            while True:
                (size,) = struct.unpack(">i", reader.read(4))
                reader.read(size)
                self.asked += 1
                self.lie(liar, connection)


LIES = {
    "silence": silent,
    "a close at once": closes(b""),
    "a close in the middle": closes(struct.pack(">ii", 1000, 1)),
    "what is no frame": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "an answer to nothing": says(struct.pack(">ii", 4, 77)),
    "an empty answer": says(struct.pack(">ii", 4, 1)),
    "what is too long": says(struct.pack(">ii", 2**31 - 1, 1)),
    "what is shorter than nothing": says(struct.pack(">ii", -5, 1)),
    "drips": drips(struct.pack(">ii", 1_000_000, 1)),
    "no end": endless(struct.pack(">ii", 99_000_000, 1)),
    "versions without end": endless(struct.pack(">iihi", 99_000_000, 1, 0, 2**31 - 1)),
}


@pytest.mark.parametrize("make", [KafkaSink, ExactlyOnceKafkaSink])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_broker_that_lies_is_asked_again(tmp_path, lie, make):
    """F111, F125: within the time of the sink, which neither its close nor the writer waits longer for."""
    broker = Broker(lie)
    with Liar(broker) as liar:
        sink = make(f"127.0.0.1:{liar.port}", timeout=0.5)
        with rigged(tmp_path / "log", sink, clock=GoingClock()) as rig:
            runner = rig.runner.start()
            rig.commit("a")
            wait_until(lambda: broker.asked and rig.runner.counters.failures)
            assert runner.state is SinkState.RETRYING
            runner.close(30)
            assert runner.state is SinkState.STOPPED
