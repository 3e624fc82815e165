"""Real targets, which fail in every way, and runners that are killed: what the target holds is what the log says.

Few of the ways and moments are tried without ``PENSTOCK_KILLS``, which ``make servers`` sets to 100.
"""

import contextlib
import gc
import os
import random
import shutil
import signal
import threading

import pytest

from publishers import ChangeLog, Criterion, backup, restore
from tests.publishers.support import wait_until
from tests.servers.carrier import Carrier, folded, mutations, target, told
from tests.servers.faulty import Fault, FaultyProxy
from tests.servers.targets import TARGETS, RedisTarget, _parsed
from tests.transports.sinks.targets import GoingClock
from transports.sinks import RetryPolicy, SinkOptions, SinkRunner, SinkState

KILLS = int(os.environ.get("PENSTOCK_KILLS", "0"))
PAUSE = threading.Event()
FAULTS = [one for one in Fault if one is not Fault.NONE] if KILLS else [Fault.MUTE]


@contextlib.contextmanager
def running(kind, folder):
    made = TARGETS[kind](folder)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module", params=TARGETS)
def server(request, tmp_path_factory):
    """A target of each kind, one server for all tests."""
    with running(request.param, tmp_path_factory.mktemp("target")) as made:
        yield made


def expected(log):
    return {one: _parsed(body) for one, body in folded(log).items()}


def judge(server, name, log):
    """The target holds the log: its state, and, where it keeps all that came, each change in its order and as often as is right."""
    assert server.held(name) == expected(log)
    streams, order = server.streams(name), {one: place for place, one in enumerate(told(log))}
    for stream in streams:
        first = [order[one] for one in dict.fromkeys(stream)]
        assert first == sorted(first), "a change came before one that lies before it"
        assert not server.once or len(first) == len(stream), "a change came twice"
    assert not streams or {one for stream in streams for one in stream} == order.keys()


class Carried:
    """A log with a runner, whose clock a test moves."""

    def __init__(self, folder, address, name, **told):
        self.log = ChangeLog.open(folder / "log", sync="os")
        self.clock = GoingClock()
        self.chance = random.Random(5)
        options = SinkOptions(
            since="earliest", linger=0.0, batch_changes=50, retry=RetryPolicy(jitter=lambda: 1.0), **told
        )
        self.sink = target(address)
        self.runner = SinkRunner(self.log, name, self.sink, options, clock=self.clock)

    def commit(self, count=5):
        for _ in range(count):
            self.log.commit(mutations(self.chance))

    def until(self, condition, seconds=0.0):
        def held():
            self.clock.now += seconds
            self.runner.step()
            assert self.runner.state is not SinkState.PAUSED, self.runner.statistics()
            return condition()

        wait_until(held, self.runner.statistics, timeout=90)

    def drained(self, seconds=0.0):
        self.until(lambda: self.runner.statistics().confirmed == self.log.head, seconds)


@contextlib.contextmanager
def carried(folder, address, name, **told):
    made = Carried(folder, address, name, **told)
    try:
        yield made
    finally:
        made.runner.close()
        made.log.close()
        gc.collect()  # clients of Kafka that wait for it keep threads and connections


def test_a_target_holds_what_the_log_says(server, tmp_path):
    """F108: and a runner that begins anew repeats nothing."""
    with carried(tmp_path, server.address("happy"), "happy") as one:
        one.commit(20)
        one.drained()
        judge(server, "happy", one.log)
        assert one.sink.alive()
        one.commit(20)
        one.drained()
        judge(server, "happy", one.log)


def test_a_target_holds_what_the_filter_of_its_sink_says(server, tmp_path):
    """F180: and nothing that has left it, whether by its values, its removal or a TRUNCATE."""
    if not getattr(target(server.address("filtered")), "keeps_entities", False):
        pytest.skip("it gets changes, and keeps no entities")
    with carried(
        tmp_path, server.address("filtered"), "filtered", criteria=Criterion(where="n < 500000")
    ) as one:
        for _ in range(3):
            one.commit(20)
            one.drained()
            right = {place: body for place, body in expected(one.log).items() if body["n"] < 500000}
            assert server.held("filtered") == right


def test_a_target_to_which_several_requests_go_at_once_holds_what_the_log_says(server, tmp_path):
    """F162: each key in its order."""
    if not getattr(target(server.address("lanes")), "parallel", False):
        pytest.skip("it takes one batch at a time")
    with carried(tmp_path, server.address("lanes"), "lanes", in_flight=4, ordering="key") as one:
        one.commit(60)
        one.drained()
        assert server.held("lanes") == expected(one.log)


def test_what_was_left_out_while_a_sink_was_off_stands_at_the_target(server, tmp_path):
    """F127: but in caches, which have no place for it."""
    with carried(tmp_path, server.address("switched"), "switched") as one:
        one.commit()
        one.drained()
        one.runner.switch_off()
        one.runner.step()
        one.commit(1)
        one.runner.switch_on()
        one.runner.step()
        gap = one.runner.statistics().gap
        one.commit()
        one.drained()
        assert server.gaps("switched") in (None, [tuple(gap)])
        assert (server.gaps("switched") is None) is isinstance(server, RedisTarget)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name.lower())
@pytest.mark.timeout(240)
def test_whatever_happens_on_the_way_to_a_target_it_holds_what_the_log_says(server, tmp_path, fault):
    """F125: slow, refusing, resetting and dying targets, which are good again after minutes."""
    if server.program is None:
        pytest.skip("no network to it")
    name = f"fault_{fault.name.lower()}"
    with (
        contextlib.nullcontext(server.proxy) if server.proxy else FaultyProxy(server.port) as proxy,
        carried(tmp_path, server.address(name, proxy.port), name) as one,
    ):
        proxy.hit = 0
        one.commit()
        one.drained()
        proxy.fault = fault
        one.commit()
        if fault is Fault.SLOW:
            one.drained()
        else:
            one.until(lambda: one.runner.counters.failures >= 2, 60.0)
            assert one.runner.statistics().last_error
        assert proxy.hit or fault is Fault.REFUSE
        proxy.fault = Fault.NONE
        one.commit()
        one.drained(60.0)
        judge(server, name, one.log)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [one for one in TARGETS if one not in ("files", "sqlite")])
def test_a_target_that_is_killed_and_comes_again_holds_what_the_log_says(kind, tmp_path):
    """F125: what it confirmed it has, and the rest is sent."""
    with (
        running(kind, tmp_path / "target") as server,
        carried(tmp_path, server.address("dies"), "dies") as one,
    ):
        for _ in range(1 + KILLS // 50):
            one.commit()
            one.drained(60.0)
            # A Kafka broker that has no other one beside it loses the end of a transaction if it is killed before readers see it.
            judge(server, "dies", one.log)
            server.program.kill()
            one.commit()
            one.until(lambda: one.runner.counters.failures > 0, 60.0)
            server.program.start()
            one.drained(60.0)
            judge(server, "dies", one.log)


@pytest.mark.timeout(1800)
def test_runners_that_are_killed_leave_a_target_that_holds_what_the_log_says(server, tmp_path):
    """F35, F106, F125: at random moments; then one comes to the end."""
    with Carrier(tmp_path / "log", server.address("killed"), "killed") as carrier:
        killed(carrier, random.Random(11), KILLS or 3)
        carrier.begin("end", 1, "drain")
        assert carrier.ended() == 0
    with ChangeLog.open(tmp_path / "log") as log:
        judge(server, "killed", log)
        assert len(told(log)) > KILLS


def killed(carrier, chance, kills):
    """Processes that commit and carry until they are killed."""
    for _ in range(kills):
        process = carrier.begin(chance.random(), 10**6)
        PAUSE.wait(chance.uniform(0.0, 0.4))
        os.kill(process, signal.SIGKILL)
        assert carrier.ended() == -signal.SIGKILL


def extended(carrier, path, name):
    """Commits more, until the target has it all, or refuses it; answers how the process ended."""
    with ChangeLog.open(path) as log:
        more = log.head.version + 20
    carrier.begin(name, more, "drain")
    return carrier.ended()


@pytest.mark.timeout(900)
def test_a_restored_log_is_refused_by_its_target_until_the_drill_is_done(server, tmp_path):
    """F178: runners are killed before the backup, in the part that is lost, while they are refused, and after the drill."""
    log, name, chance = tmp_path / "log", "restored", random.Random(13)
    address, kills = server.address(name), KILLS // 10 or 1
    with Carrier(log, address, name) as carrier:
        killed(carrier, chance, kills)
        assert extended(carrier, log, "kept") == 0
        backup(log, tmp_path / "backup")
        killed(carrier, chance, kills)
        assert extended(carrier, log, "lost") == 0
        held = server.held(name)
        restore(tmp_path / "backup", log, replace=True)
        killed(carrier, chance, kills)
        assert extended(carrier, log, "refused") == 1
        assert server.held(name) == held
        with carried(tmp_path, address, name) as one:
            refused(one)
            server.emptied(name)
            for order in (one.runner.seek("earliest"), one.runner.resume()):
                wait_until(lambda order=order: one.runner.step() is not None and order.done())
                order.result()
            one.drained(1.0)
            judge(server, name, one.log)
        killed(carrier, chance, kills)
        assert extended(carrier, log, "accepted") == 0
    with ChangeLog.open(log) as opened:
        judge(server, name, opened)


def refused(one):
    """Its sink stops, and says why in a sentence that tells what to do."""

    def stopped():
        one.runner.step()
        return one.runner.state in (SinkState.PAUSED, SinkState.LOST)

    wait_until(stopped, one.runner.statistics, timeout=90)
    reason = one.runner.statistics().reason
    assert "seek" in reason
    assert "\n" not in reason


@pytest.mark.timeout(600)
def test_a_copy_of_a_log_is_refused_by_a_target_that_has_more_than_it(server, tmp_path):
    """F178: with its slots, and over kills; the log itself goes on. A webhook and topics without places cannot tell."""
    sink, name, chance = target(server.address("copied")), "copied", random.Random(17)
    log, copy, address = tmp_path / "log", tmp_path / "copy" / "log", server.address("copied")
    if not (sink.stores_position or getattr(sink, "marks_history", False)):
        pytest.skip("it stores no place")
    with Carrier(log, address, name) as carrier, Carrier(copy, address, name) as other:
        killed(carrier, chance, 1)
        assert extended(carrier, log, "common") == 0
        shutil.copytree(log, copy)
        killed(carrier, chance, KILLS // 10 or 1)
        assert extended(carrier, log, "own") == 0
        held = server.held(name)
        killed(other, chance, KILLS // 10 or 1)
        assert extended(other, copy, "copy") == 1
        with carried(copy.parent, address, name) as one:
            refused(one)
            assert "another history" in one.runner.statistics().reason
        assert server.held(name) == held
        assert extended(carrier, log, "still") == 0
    with ChangeLog.open(log) as opened:
        judge(server, name, opened)
