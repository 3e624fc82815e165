"""Stores: logs that come, go and change their names, and what everybody is told of it."""

import contextlib
import shutil
from dataclasses import fields

import pytest

import flow
from penstock_cdc.errors import LogBusy, LogReadOnly
from publishers import Area, ChangeLog, Content, Criterion, LogOptions, upsert
from publishers.errors import (
    InvalidChange,
    InvalidName,
    InvalidOption,
    LogClosed,
    LogDropped,
    LogExists,
    NoSuchLog,
    NotALog,
    NotAStore,
)
from publishers.store.store import ChangeStore
from tests.harness.scale import scaled
from tests.publishers.support import QUICK, Probe, fill, in_threads, order


@contextlib.contextmanager
def following(place):
    with ChangeStore.open(place, read_only=True, tail_poll=0.001) as store:
        yield store


def follow(log, *wishes, **options):
    probe = Probe(first=1000)
    log.changes(*wishes, **options).subscribe(probe, executor=flow.INLINE)
    return probe


def told(probe):
    return [(change.meta or {}).get("event", change.operation.name) for change in probe.changes]


# Options.


def least(field):
    """Another value of an option than its default: the other switch, the other word, or the least number."""
    words = {"sync": "os", "origin": "here", "readers": "group"}
    default = field.default
    if isinstance(default, bool):
        return not default
    return words[field.name] if field.name in words else getattr(field.type, "__metadata__", (1,))[0]


@pytest.mark.parametrize("field", fields(LogOptions), ids=lambda field: field.name)
def test_a_store_opens_with_every_option(place, field):
    """Given to the store, an option reaches the system log too: ``state=True`` asked it for what was not there yet."""
    given = {field.name: least(field)}
    for options in (given, {}, given):
        with ChangeStore.open(place, **{**QUICK, **options}) as store:
            log = store["orders"] if "orders" in store else store.create("orders")
            assert getattr(log.options, field.name) == least(field) or not options
            log.commit([order(1)])
            assert store.names() == ["orders"]


# Logs.


def test_a_log_is_made_written_found_again_and_dropped(place):
    with ChangeStore.open(place, **QUICK) as store:
        log = store.create("orders", type="journal", labels={"team": "shop"})
        assert store["orders"] is log is store.log("orders")
        assert log.name == "orders"
        fill(log, 2)
        store.create("users")
        assert store.names() == ["orders", "users"]
        assert "orders" in store
        assert len(store) == 2
    with ChangeStore.open(place, **QUICK) as store:
        assert list(store) == ["orders", "users"]
        assert store.opened() == {}
        assert store["orders"].head.version == 3
        assert list(store.opened()) == ["orders"]
        entry = store.entry("orders")
        assert (entry.type, entry.labels) == ("journal", {"team": "shop"})
        store.drop("orders")
        store.drop("users")
        assert not list(store)
    assert sorted(path.name for path in place.iterdir()) == [".system", "LOCK"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        "/etc",
        "a\\b",
        ".system",
        "$system",
        "-x",
        "a b",
        "ä",
        "a" * 129,
        "CON",
        "nul.txt",
        "x.",
        "HEAD",
        "lock",
        "wal-000000000001.log",
        "x.tmp",
        "a\n",
        "a\x00",
        None,
        7,
        b"x",
    ],
)
def test_a_name_that_is_not_portable_is_refused_and_told_what_is_right(store, name):
    with pytest.raises(InvalidName, match="begin with a letter or a digit") as caught:
        store.create(name)
    assert caught.value.name == name
    assert not store.names()


@pytest.mark.parametrize("name", ["a", "0", "a" * 128, "orders-2024.eu_west", "Constant", "com10"])
def test_a_portable_name_is_taken(store, name):
    assert store.create(name).name == name


def test_names_that_differ_in_case_only_are_one(store):
    store.create("Orders")
    with pytest.raises(LogExists, match="'Orders'"):
        store.create("orders")
    store.create("users")
    with pytest.raises(LogExists):
        store.rename("users", "ORDERS")
    store.rename("Orders", "orders")
    assert store.names() == ["orders", "users"]


def test_a_log_that_is_not_there_is_told_with_those_that_are(store):
    """E50: before it is made, and after it was dropped."""
    store.create("orders")
    with pytest.raises(NoSuchLog, match=r"^there is no log 'users' in the store; it has orders$"):
        store.log("users")
    assert store.get("users") is None
    for call in (store.drop, store.entry, store.retype, lambda name: store.rename(name, "x")):
        with pytest.raises(NoSuchLog):
            call("users")
    store.drop("orders")
    with pytest.raises(NoSuchLog, match="none yet"):
        store.log("orders")


def test_what_is_wrong_makes_no_log(store, place):
    for call, error in (
        (lambda: store.create("a", ring_evnts=1), InvalidOption),
        (lambda: store.create("a", ring_events=0), InvalidOption),
        (lambda: store.create("a", type=""), InvalidChange),
        (lambda: store.create("a", labels={"x": 1}), InvalidChange),
        (lambda: store.create("a", labels=[]), InvalidChange),
    ):
        with pytest.raises(error):
            call()
    assert not store.names()
    assert sorted(path.name for path in place.iterdir()) == [".system", "LOCK"]


def test_options_of_a_log_are_kept_with_it(place):
    with ChangeStore.open(place, ring_events=50, **QUICK) as store:
        store.create("orders", ring_events=7)
        store.create("users")
    with ChangeStore.open(place, ring_events=60, **QUICK) as store:
        assert store["orders"].options.ring_events == 7
        assert store["users"].options.ring_events == 60


def test_a_log_that_its_user_has_closed_is_opened_again(store):
    log = store.create("orders")
    log.close()
    assert store["orders"] is not log
    fill(store["orders"], 1)


def test_renaming_disturbs_nobody(store):
    """Subscribers and writers go on: a log is its files, and those stay where they are."""
    log = store.create("orders")
    probe = follow(log)
    fill(log, 1)
    store.rename("orders", "sales")
    fill(log, 1)
    assert len(probe.changes) == 4
    assert not probe.terminals
    assert store["sales"] is log
    assert log.name == "sales"
    other = store.create("orders")
    assert other is not log
    assert other.path != log.path
    store.rename("sales", "sales")
    assert store.system.head.version == 4, "that was nothing"


def test_a_store_is_told_from_a_log_and_from_anything_else(place, tmp_path):
    with ChangeLog.open(tmp_path / "log"):
        pass
    with pytest.raises(NotAStore, match="it is a single log"):
        ChangeStore.open(tmp_path / "log")
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    for path in (tmp_path / "else", tmp_path / "else" / "file"):
        with pytest.raises(NotAStore, match="something else"):
            ChangeStore.open(path)
    with pytest.raises(NotAStore):
        ChangeStore.open(tmp_path / "nothing", read_only=True)
    assert not (tmp_path / "nothing").exists()
    with ChangeStore.open(place), pytest.raises(NotALog):
        ChangeLog.open(place)


def test_a_store_has_one_owner(place):
    """F50: whoever comes second may follow."""
    with ChangeStore.open(place, **QUICK) as store:
        store.create("orders")
        with pytest.raises(LogBusy):
            ChangeStore.open(place)
        with following(place) as other:
            assert other.names() == ["orders"]
            for call in (other.create, other.drop, other.retype, lambda name: other.rename(name, "x")):
                with pytest.raises(LogReadOnly):
                    call("orders")
            with pytest.raises(LogReadOnly):
                other["orders"].commit([order(1)])


def test_a_log_that_somebody_writes_is_not_dropped(store):
    store.create("orders").close()
    with ChangeLog.open(store.path / "orders", **QUICK):
        with pytest.raises(LogBusy):
            store.drop("orders")
        with pytest.raises(LogBusy):
            store.log("orders")
    assert store.names() == ["orders"]
    store.drop("orders")


def test_a_log_whose_files_somebody_removed_is_not_made_anew(place):
    with ChangeStore.open(place, **QUICK) as store:
        path = store.create("orders").path
    shutil.rmtree(path)
    with ChangeStore.open(place, **QUICK) as store:
        with pytest.raises(NotALog, match="its files are gone"):
            store.log("orders")
        assert not path.exists()
        store.drop("orders")
        assert not store.names()


def test_what_is_not_ours_in_the_directory_is_left_alone(place):
    with ChangeStore.open(place, **QUICK) as store:
        (place / "orders").mkdir()
        (place / "orders" / "precious").touch()
        store.create("orders")
        store.drop("orders")
    with ChangeStore.open(place, **QUICK) as store:
        assert not store.names()
    assert (place / "orders" / "precious").exists()


def test_a_link_in_a_dropped_log_is_removed_and_what_it_points_at_is_not(store, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    log = store.create("orders")
    (log.path / "slots").symlink_to(tmp_path / "precious")
    store.drop("orders")
    assert not log.path.exists()
    assert (tmp_path / "precious" / "file").exists()


def test_a_closed_store_says_so(place):
    store = ChangeStore.open(place, **QUICK)
    log = store.create("orders")
    probe = follow(log)
    store.close()
    store.close()
    assert probe.completed
    assert log.closed
    for call in (
        store.names,
        lambda: store.log("orders"),
        lambda: store.create("x"),
        lambda: store.drop("orders"),
    ):
        with pytest.raises(LogClosed):
            call()


def test_statistics_tell_of_all_logs(store):
    fill(store.create("orders"), 3)
    store.create("users").close()
    told = store.statistics()
    assert told.names == ("orders", "users")
    assert told.logs["orders"].head.version == 4
    assert list(told.logs) == ["orders"]
    assert told.system.head.version == 3


# The system log.


def test_each_transaction_of_the_system_log_is_its_leading_event_and_one_change(store):
    """E51."""
    probe = follow(store.system, content=Content.BODY)
    store.create("orders")
    store.retype("orders", type="journal", labels={"a": "b"})
    store.rename("orders", "sales")
    store.drop("sales")
    assert [(c.version, c.index, c.area, c.operation.name, c.key) for c in probe.changes if c.index] == [
        (1, 1, Area.ENGINE, "UPSERT", "orders"),
        (2, 1, Area.ENGINE, "UPSERT", "orders"),
        (3, 1, Area.ENGINE, "UPSERT", "sales"),
        (4, 1, Area.ENGINE, "REMOVE", "sales"),
    ]
    assert [change.index for change in probe.changes] == [0, 1] * 4
    assert {change.count for change in probe.changes} == {2}
    assert {change.entity_type for change in probe.changes if change.index} == {"log"}
    assert told(probe)[1::2] == ["CREATED", "RETYPED", "RENAMED", "DROPPED"]
    assert probe.changes[3].body["labels"] == {"a": "b"}
    assert probe.changes[5].before["name"] == "orders"
    assert probe.changes[5].meta["from"] == "orders"
    assert probe.changes[7].before["name"] == "sales"
    page = store.system.history(content=Content.BODY)
    assert list(page.changes) == probe.changes


def test_no_criteria_are_everything_on_a_log_and_stored_events_on_the_system_log(store):
    """E14: and an empty list is everything on the one, and nothing on the other."""
    log = store.create("orders")
    everything, empty = follow(log), follow(log, [])
    system, nothing = follow(store.system, None), follow(store.system, [])
    host = follow(store.system, Criterion(areas={Area.HOST}))
    fill(log, 1)
    store.create("users")
    assert len(everything.changes) == len(empty.changes) == 2
    assert [change.area for change in system.changes] == [Area.INFRASTRUCTURE, Area.ENGINE]
    assert not nothing.changes
    assert [change.area for change in host.changes] == [Area.HOST]
    assert not store.system.history([]).changes
    assert len(store.system.history().changes) == 4
    nothing.subscription.checkpoint()
    assert nothing.subscription.position == store.system.head, "it moves on over what it does not want"


def test_only_the_store_writes_the_system_log(store):
    for write in (
        lambda: store.system.commit([upsert("log", "x", {})]),
        lambda: store.system.commit_columns([]),
        store.system.transaction,
    ):
        with pytest.raises(LogReadOnly, match="which its store writes"):
            write()


def test_logs_with_equal_criteria_never_mix(store):
    """E13: nor do they with the system log."""
    wish = Criterion(entity_types={"log"})
    one, other = store.create("one"), store.create("other")
    probes = [follow(log, wish) for log in (one, other, store.system)]
    one.commit([order("a", "log")])
    other.commit([order("b", "log")])
    store.create("c")
    assert [[change.key for change in probe.changes] for probe in probes] == [["a"], ["b"], ["c"]]


# Ends.


def test_everybody_hears_once_that_a_log_was_dropped(store):
    """E45, D14: with demand and without, on pools and loops."""
    log = store.create("orders")
    feed = log.changes()
    idle, waiting, pooled = Probe(), Probe(first=9), Probe(first=9)
    feed.subscribe(idle, executor=flow.INLINE)
    feed.subscribe(waiting, executor=flow.INLINE)
    feed.subscribe(pooled)
    other = follow(store.create("users"))
    fill(log, 1)
    store.drop("orders")
    late = Probe(first=1)
    feed.subscribe(late, executor=flow.INLINE)
    for probe in (idle, waiting, pooled, late):
        probe.wait_for_end()
        assert isinstance(probe.error, LogDropped)
        assert probe.error.name == "orders"
        assert probe.clean
    assert not other.terminals
    again = store.create("orders")
    assert again.log_id != log.log_id
    assert again.head.version == 1


def test_who_subscribes_while_a_log_is_dropped_hears_of_it_once(store):
    """E65, E50."""
    for number in range(scaled(20)):
        log = store.create(f"log{number}")
        probes = [Probe(first=9) for _ in range(20)]

        def subscribe(log=log, probes=probes):
            for probe in probes:
                log.changes(since=log.oldest).subscribe(probe)

        in_threads(subscribe, lambda name=log.name: store.drop(name))
        for probe in probes:
            probe.wait_for_end()
            assert isinstance(probe.error, LogDropped)
            assert probe.clean


# Followers.


# Many at once.


def test_many_threads_make_write_rename_and_drop_logs(store, place):
    """E51, E65: what the system log tells is what there is, for the owner and for a follower."""
    failures = []

    def work(number):
        for turn in range(scaled(8)):
            name, other = f"log{number}-{turn}", f"new{number}-{turn}"
            log = store.create(name)
            log.commit([order(turn)])
            store.rename(name, other)
            if store.log(other) is not log or log.head.version != 2:
                failures.append(name)
            if turn % 2:
                store.drop(other)

    def look():
        with following(place) as mine:
            for _ in range(scaled(200)):
                for name in mine:
                    with contextlib.suppress(NoSuchLog, LogDropped, LogClosed):
                        mine.log(name).history()

    in_threads(*(lambda number=number: work(number) for number in range(4)), look)
    assert not failures
    kept = sorted(f"new{number}-{turn}" for number in range(4) for turn in range(0, scaled(8), 2))
    assert store.names() == kept == sorted(store.opened())
    with following(place) as other:
        assert other.names() == kept
    directories = {store.entry(name).directory for name in kept}
    assert {path.name for path in place.iterdir()} == directories | {".system", "LOCK"}


def test_a_subscriber_may_use_the_store_from_inside_a_signal(store):
    """The store calls nobody while it holds what another call of the same thread would need."""

    class Curious(Probe):
        def on_next(self, change):
            super().on_next(change)
            if change.index and change.operation.name == "UPSERT":
                found.append((store.names(), store.entry(change.key).name))

    found = []
    store.system.changes().subscribe(Curious(first=99), executor=flow.INLINE)
    store.create("orders")
    store.rename("orders", "sales")
    assert len(found) == 2
