"""Events of a process that ride on the system log: after their cause, in order, and never lost in silence."""

import threading
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flow
from publishers import Area, Content, Criterion, Operation
from publishers.log.process_events import WAITING
from publishers.store.store import ChangeStore
from tests.harness.inside import service_of
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, BatchProbe, ManualExecutor, Probe, fill, wait_until

EVERYTHING = Criterion(areas={Area.INFRASTRUCTURE, Area.ENGINE, Area.HOST})
HOST = Criterion(areas={Area.HOST})


@pytest.fixture
def store(tmp_path):
    with ChangeStore.open(tmp_path / "shop", **QUICK) as store:
        yield store


class LaggedProbe(Probe):
    def __init__(self, first=0):
        super().__init__(first)
        self.lagged = []

    def on_lagged(self, missed):
        with self._signal():
            self.lagged.append(missed)


def tell(store, count, start=0):
    for number in range(start, start + count):
        store.system.board.publish(str(number), "TOLD", {"number": number})


def shape(changes):
    return [(c.version, c.index, c.area.name, (c.meta or {}).get("event")) for c in changes]


def test_events_of_this_process_are_told_to_those_who_name_the_area(store):
    """E51, E14: live only, with the current version, index 0, after their cause; the version does not advance."""
    everything, host, plain = Probe(first=99), Probe(first=99), Probe(first=99)
    store.system.changes(EVERYTHING).subscribe(everything, executor=flow.INLINE)
    store.system.changes(HOST, content=Content.BODY).subscribe(host, executor=flow.INLINE)
    store.system.changes().subscribe(plain, executor=flow.INLINE)
    log = store.create("orders")
    store.drop("orders")
    assert shape(everything.changes) == [
        (1, 0, "INFRASTRUCTURE", None),
        (1, 1, "ENGINE", "CREATED"),
        (1, 0, "HOST", "OPENED"),
        (2, 0, "INFRASTRUCTURE", None),
        (2, 1, "ENGINE", "DROPPED"),
        (2, 0, "HOST", "CLOSED"),
    ]
    assert store.system.head.version == 3
    assert [change.body for change in host.changes] == [
        {"epoch": log.epoch, "oldest": "1:0", "head": "1:0", "readOnly": False},
        {"reason": "LogDropped"},
    ]
    assert {(change.operation, change.entity_type, change.key, change.count) for change in host.changes} == {
        (Operation.UPSERT, "log", "orders", 1)
    }
    assert all(change.area is not Area.HOST for change in plain.changes)
    late = Probe(first=99)
    store.system.changes(EVERYTHING, since=store.system.oldest).subscribe(late, executor=flow.INLINE)
    late.wait_for(4)
    assert Area.HOST not in {change.area for change in late.changes}, "they are never replayed"
    assert all(probe.clean for probe in (everything, host, plain, late))


def test_what_can_happen_to_a_log_in_a_process_is_told(store, tmp_path):
    """E51."""
    log = store.create("orders")
    probe, reader = Probe(first=99), Probe(first=9)
    store.system.changes(HOST, content=Content.BODY).subscribe(probe, executor=flow.INLINE)
    log.changes().subscribe(reader, executor=flow.INLINE, name="billing")
    log.unsubscribe(reader.subscription.id)
    log.close()
    (log.path / "HEAD").write_bytes(b"nonsense" * 1000)
    for path in log.path.glob("wal-*"):
        path.write_bytes(b"")
    with pytest.raises(Exception, match=r"."):
        store.log("orders")
    assert [change.meta["event"] for change in probe.changes] == ["UNSUBSCRIBED", "CLOSED", "FAILED"]
    assert probe.changes[0].body == {"subscription": reader.subscription.id, "subscriber": "billing"}
    assert probe.changes[1].body == {"reason": None}
    assert set(probe.changes[2].body) == {"error", "message"}


def test_only_the_wished_for_events_come(store):
    mine = Probe(first=99)
    store.system.changes(Criterion(areas={Area.HOST}, keys={"3", "5"})).subscribe(mine, executor=flow.INLINE)
    tell(store, 8)
    assert [change.key for change in mine.changes] == ["3", "5"]
    mine.subscription.cancel()
    tell(store, 8)
    assert len(mine.changes) == 2
    assert not store.system.board._readers


def test_what_nobody_asks_for_in_time_is_counted_and_told(store):
    """D15: by the next event, and at once by ``on_lagged``, which needs no demand."""
    slow = LaggedProbe()
    store.system.changes(HOST).subscribe(slow, executor=flow.INLINE)
    tell(store, WAITING)
    assert not slow.lagged
    tell(store, 10, WAITING)
    assert slow.lagged[-1] == 10
    assert not slow.changes
    slow.request(2)
    assert [change.key for change in slow.changes] == ["10", "11"]
    assert [change.meta for change in slow.changes] == [{"event": "TOLD", "missed": 10}, {"event": "TOLD"}]
    slow.request(WAITING)
    assert [change.key for change in slow.changes] == [str(number) for number in range(10, WAITING + 10)]
    assert slow.clean


def test_a_batch_of_changes_is_split_where_an_event_belongs(store):
    """E51: whoever was slow gets everything in the order in which it happened, whatever its demand."""
    executor = ManualExecutor()
    probe = BatchProbe(first=100)
    store.system.changes(EVERYTHING).subscribe(probe, executor=executor)
    for number in range(4):
        store.create(f"log{number}")
    executor.run_all()
    assert [entry[::3] for entry in shape(probe.changes)] == [
        (version, event) for version in range(1, 5) for event in (None, "CREATED", "OPENED")
    ]
    assert probe.subscription.position.version == 1 or probe.subscription.checkpoint()
    assert probe.subscription.position == store.system.head
    assert probe.clean


@given(st.lists(st.sampled_from(["create", "tell", "one", "few", "many"]), max_size=40), st.integers(1, 5))
def test_events_and_changes_come_in_order_under_any_demand(acts, ring):
    """E51, D15: from the ring and from the log; events after their cause, versions never back, nothing twice."""
    with (
        TemporaryDirectory() as place,
        ChangeStore.open(place, ring_events=ring, batch_events=3, **QUICK) as store,
    ):
        probe = Probe()
        store.system.changes(EVERYTHING, content=Content.BODY).subscribe(probe, executor=flow.INLINE)
        told, made = 0, 0
        for act in acts:
            if act == "create":
                store._logs.record(_made(made))
                made += 1
            elif act == "tell":
                store.system.board.publish(str(made), "TOLD", {"number": told})
                told += 1
            else:
                probe.request({"one": 1, "few": 3, "many": 20}[act])
        probe.request(1000)
        probe.wait_for(2 * made + told)
        stored = [change for change in probe.changes if change.area is not Area.HOST]
        assert [(c.version, c.index) for c in stored] == [(v, i) for v in range(1, made + 1) for i in (0, 1)]
        hosted = [change for change in probe.changes if change.area is Area.HOST]
        assert [change.body["number"] for change in hosted] == list(range(told))
        assert [change.version for change in hosted] == [int(change.key) for change in hosted]
        versions = [change.version for change in probe.changes]
        assert versions == sorted(versions)
        assert probe.clean


def _made(number):
    from publishers.store.log_entries import LogEntry, created

    return created(LogEntry(f"log{number}", "00", f"log{number}"))


def test_events_follow_their_cause_on_an_executor_of_many_threads(store):
    """D15, E51: many changes, told by many threads."""
    with ThreadPoolExecutor(8) as pool:
        probes = [Probe(first=1, each=1) for _ in range(8)]
        for probe in probes:
            store.system.changes(EVERYTHING).subscribe(probe, executor=pool)

        def work(number):
            for turn in range(scaled(6)):
                name = f"log{number}-{turn}"
                store.create(name)
                store.drop(name)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = scaled(6) * 3 * 6
        for probe in probes:
            probe.wait_for(expected)
            assert len(probe.changes) == expected, "nothing was dropped"
            versions = [change.version for change in probe.changes]
            assert versions == sorted(versions)
            seen = set()
            for change in probe.changes:
                event = (change.meta or {}).get("event")
                if event == "OPENED":
                    assert (change.key, "CREATED") in seen
                if event == "CLOSED":
                    assert (change.key, "DROPPED") in seen
                seen.add((change.key, event))
            assert probe.clean
        assert [shape(probe.changes) for probe in probes[1:]] == [shape(probes[0].changes)] * 7


def test_events_come_in_between_for_who_goes_back_too(store):
    """E51: a seek moves what is stored, and repeats no event of the process."""
    probe = Probe(first=5)
    store.system.changes(EVERYTHING).subscribe(probe, executor=flow.INLINE)
    store.create("a")
    store.create("b")
    assert len(probe.changes) == 5
    probe.subscription.seek(store.system.oldest)
    probe.request(20)
    probe.wait_for(10)
    events = [entry[3] for entry in shape(probe.changes)]
    assert events[:5] == [None, "CREATED", "OPENED", None, "CREATED"]
    assert [event for event in events[5:] if event != "OPENED"] == [None, "CREATED"] * 2
    assert events[5:].count("OPENED") == 1
    assert probe.clean


def test_a_follower_tells_of_its_own_process(store, tmp_path):
    """E51, F50."""
    fill(store.create("orders"), 1)
    with ChangeStore.open(tmp_path / "shop", read_only=True, tail_poll=0.001) as other:
        mine, theirs = Probe(first=9), Probe(first=9)
        other.system.changes(HOST, content=Content.BODY).subscribe(mine, executor=flow.INLINE)
        store.system.changes(HOST).subscribe(theirs, executor=flow.INLINE)
        other.log("orders")
        assert mine.changes[0].body == {"epoch": 1, "oldest": "1:0", "head": "2:0", "readOnly": True}
        assert not theirs.changes
        store.drop("orders")
        wait_until(lambda: len(mine.changes) == 2)
        assert shape(mine.changes)[1] == (2, 0, "HOST", "CLOSED")


def test_what_the_replayer_has_just_read_comes_before_an_event_that_happened_after_it(store):
    """E51: also if the slice is over by the time the drain looks."""

    class Prompt:
        waiting = 0

        def enlist(self, task):
            while task.replay():
                pass

        def close(self):
            return

    executor = ManualExecutor()
    service = service_of(store.system)
    service.replayer.close()
    service.replayer = Prompt()
    for name in ("orders", "items", "users"):
        store.create(name)
    service.frames.clear()
    probe = Probe(first=99)
    store.system.changes(Criterion(areas={Area.INFRASTRUCTURE, Area.HOST}), since=1).subscribe(
        probe, executor=executor
    )
    tell(store, 1)
    wait_until(lambda: executor.run_all() < 0 or len(probe.changes) == 4, probe.state)
    assert [(change.version, change.area.name) for change in probe.changes] == [
        (1, "INFRASTRUCTURE"),
        (2, "INFRASTRUCTURE"),
        (3, "INFRASTRUCTURE"),
        (3, "HOST"),
    ]
