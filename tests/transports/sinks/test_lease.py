"""One active sender: at most one contender holds a lease at any moment, whatever stops, jumps or fails."""

import random
import signal

import pytest
import sqlalchemy as sql

from penstock_cdc.errors import InvalidOption
from tests.harness.scale import scaled
from transports.sinks.file_leases import FileLeases
from transports.sinks.lease import Lease, SinkLeading
from transports.sinks.sql_leases import SqlLeases


class Host:
    """The clock of a host: its own zero, and one true time beneath."""

    def __init__(self, time, zero=0.0):
        self.time, self.zero = time, zero

    def monotonic(self):
        return self.time[0] + self.zero

    def now_us(self):
        raise AssertionError("a lease must not ask for the wall clock")


@pytest.fixture
def engine():
    engine = sql.create_engine("sqlite://", poolclass=sql.pool.StaticPool)
    yield engine
    engine.dispose()


def contender(engine, time, zero=0.0, **durations):
    clock = Host(time, zero)
    return Lease(SqlLeases(engine, "orders", create=True, clock=clock), clock=clock, **durations)


class Unreachable:
    """A store between which and its contender the network may be cut: before a call, or behind it."""

    def __init__(self, store):
        self.store, self.cut = store, None

    def __getattr__(self, name):
        def call(*given):
            cut, self.cut = self.cut if name != "close" else None, None
            if cut == "before":
                raise ConnectionError("cut")
            found = getattr(self.store, name)(*given)
            if cut == "behind":
                raise ConnectionError("cut")
            return found

        return call


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_two_never_hold_it_at_once_whatever_stops_or_is_cut(engine, seed):
    """F121: contenders that are stopped for any time, cut off, closed and begun anew, by clocks with zeros of their own."""
    rng, time = random.Random(seed), [0.0]
    contenders, epochs, gains = [], [], 0
    for _ in range(3):
        one = contender(engine, time, rng.uniform(-1e6, 1e6))
        one._store = Unreachable(one._store)
        contenders.append(one)
    for _ in range(400):
        time[0] += rng.choice((0.1, 0.5, 1.0, 3.0, rng.uniform(0, 15)))
        one = rng.choice(contenders)  # the others are stopped meanwhile
        one._store.cut = rng.choice((None, None, None, "before", "behind"))
        before = one.epoch
        if rng.random() < 0.03:
            one.close()
        else:
            one.step()
        if one.epoch is not None and one.epoch != before:
            epochs.append(one.epoch)
            gains += 1
        assert sum(each.held() for each in contenders) <= 1
    assert epochs == sorted(set(epochs))
    assert gains > 3


def test_a_contender_takes_over_when_the_holder_has_been_silent_for_a_whole_term(engine):
    """F121: and the holder stops before, by its own clock."""
    time = [0.0]
    first, second = contender(engine, time), contender(engine, time, 1e6)
    first.step()
    assert (first.epoch, first.held(), first.due) == (1, True, 3.0)
    second.step()
    assert (second.epoch, second.held()) == (None, False)
    time[0] = 7.9
    assert first.held()
    time[0] = 8.0
    assert not first.held()
    second.step()
    assert second.epoch is None
    time[0] = 11.0
    second.step()
    assert (second.epoch, second.held()) == (2, True)
    first.step()
    assert first.epoch is None
    assert not first.held()


def test_a_holder_that_renews_keeps_it(engine):
    """F121."""
    time = [0.0]
    first, second = contender(engine, time), contender(engine, time)
    for _ in range(50):
        time[0] += 2.9
        first.step()
        second.step()
        assert first.held()
        assert second.epoch is None
    assert first.epoch == 1


def test_a_lease_that_is_given_back_is_taken_at_once_and_its_epoch_rises(engine):
    """F121, F122: a gain by the same contender is a new epoch too."""
    time = [0.0]
    first, second = contender(engine, time), contender(engine, time)
    first.step()
    first.close()
    second.step()
    assert second.epoch == 2
    second.close()
    second.close()
    time[0] = 3.0
    first.step()
    assert first.epoch == 3


def test_a_holder_whose_renewal_is_answered_late_stops_meanwhile_and_continues_in_its_epoch(engine):
    """F121: no other contender could gain the lease in between."""
    time, seen = [0.0], []
    first, second = contender(engine, time), contender(engine, time)
    first.step()
    store = first._store

    class Slow:
        def renew(self, epoch):
            renewed = store.renew(epoch)
            time[0] = 8.5
            second.step()
            seen.append((first.held(), second.epoch))
            return renewed

    time[0], first._store = 7.5, Slow()
    first.step()
    assert seen == [(False, None)]
    assert (first.epoch, first.held()) == (1, True)


def test_a_store_that_fails_ends_nothing_before_its_time(engine, caplog):
    """F121."""
    time = [0.0]
    one = contender(engine, time)
    one._store = Unreachable(one._store)
    one.step()
    for now in (3.0, 6.0):
        time[0], one._store.cut = now, "before"
        one.step()
        assert one.held()
    assert "could not be requested: cut" in caplog.text
    time[0] = 8.5
    one.step()
    assert one.epoch is None
    time[0] = 12.0
    one.step()
    assert one.epoch is None  # by what this contender knows another one may have it
    time[0] = 22.0
    one.step()
    assert one.held()
    one._store.cut = "before"
    one.close()
    assert "could not be released: cut" in caplog.text


def test_two_that_come_first_to_an_empty_table_are_told_apart(engine):
    """F121: the second insert fails, and is no error."""
    store, rival = SqlLeases(engine, "orders"), SqlLeases(engine, "orders")
    store._rows.create(engine)
    real = store._engine

    class Late:
        """Between the look and the insert another one inserts."""

        def __init__(self):
            self.calls = 0

        def begin(self):
            self.calls += 1
            if self.calls == 2:
                assert rival.acquire("rival", 10.0) == 1
            return real.begin()

    store._engine = Late()
    assert store.acquire("late", 10.0) is None
    assert not store.renew(2)
    assert rival.renew(1)


@pytest.mark.parametrize("durations", [{"seconds": 5.0}, {"every": 0}, {"margin": 0}])
def test_durations_that_do_not_fit_are_refused(engine, durations):
    """F121."""
    with pytest.raises(InvalidOption, match=r"more than every \+ margin"):
        contender(engine, [0.0], **durations)
    with pytest.raises(InvalidOption, match="1 to 200"):
        SqlLeases(engine, "")


def test_one_process_of_a_host_holds_a_file_and_a_killed_one_leaves_it(tmp_path, script):
    """F121, F122: the kernel frees what a killed holder had; the epoch goes on."""
    code = (
        "import sys; from transports.sinks.file_leases import FileLeases\n"
        "store = FileLeases(sys.argv[1]); print(store.acquire('child', 10.0), flush=True); sys.stdin.read()"
    )
    path = tmp_path / "lease"
    store, rival = FileLeases(path), FileLeases(path)
    for turn in range(scaled(4)):
        with script(code, path) as child:
            assert child.stdout.readline() == f"{2 * turn + 1}\n"
            assert store.acquire("here", 10.0) is None
            child.send_signal(signal.SIGKILL)
            child.wait()
        assert store.acquire("here", 10.0) == 2 * turn + 2
        assert rival.acquire("rival", 10.0) is None
        assert store.renew(2 * turn + 2)
        store.release(2 * turn + 2)
        assert not store.renew(2 * turn + 2)
    assert (tmp_path / "lease.epoch").read_text().endswith(" here\n")


def test_a_file_that_was_replaced_is_held_no_more(tmp_path):
    """F121: another process may lock the new one."""
    path = tmp_path / "lease"
    store, rival = FileLeases(path), FileLeases(path)
    epoch = store.acquire("a", 10.0)
    path.unlink()
    assert rival.acquire("b", 10.0) == epoch + 1
    assert not store.renew(epoch)
    assert rival.renew(epoch + 1)
    store.close()
    rival.close()


def test_a_file_of_epochs_that_is_none_is_refused_by_name(tmp_path, caplog):
    """F121: to begin at 1 again would give an epoch twice."""
    path = tmp_path / "lease"
    (tmp_path / "lease.epoch").write_bytes(b"nonsense")
    with pytest.raises(InvalidOption, match="number of an epoch"):
        FileLeases(path).acquire("a", 10.0)
    lease = Lease(FileLeases(path))
    lease.step()
    assert not lease.held()
    assert "number of an epoch" in caplog.text
    (tmp_path / "lease.epoch").write_bytes(b"6 old\n")
    assert FileLeases(path).acquire("a", 10.0) == 7


def test_leases_of_several_names_lie_in_one_table(engine):
    """F121: by the clock of this machine, with names of their own."""
    leases = [Lease(SqlLeases(engine, name, create=True)) for name in ("orders", "stock")]
    for lease in leases:
        lease.step()
    assert [lease.held() for lease in leases] == [True, True]
    assert leases[0].holder != leases[1].holder


def test_a_runner_sends_under_the_gain_that_it_knows_and_no_later_one():
    """F123: one that was lost and gained again in between begins anew, since another runner may have sent meanwhile."""

    class Held:
        epoch, here = 1, True

        def held(self):
            return self.here

    lease = Held()
    leading = SinkLeading(lease)
    assert leading.holds
    lease.here = False
    assert not leading.holds
    lease.here, lease.epoch = True, 3
    assert not leading.holds
    assert leading.gain()
    assert (leading.holds, leading.epoch) == (True, 3)
