"""A journal beside a log: what was synced is found again, or its loss is told."""

import itertools
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from publishers.journal import JOURNAL_NAMES, Journal, JournalDamaged
from tests.harness.scale import each
from tests.simulation.filesystem import PowerCut, SimulatedFileSystem

LOG = Path("/log")
HERE = LOG / "slots"
LOG_ID = UUID(int=7)


def journal(system, log_id=LOG_ID):
    return Journal(system, HERE, log_id)


def written(count=5, size=16):
    """A disk with a journal of so many frames, and their payloads."""
    system = SimulatedFileSystem(1)
    one = journal(system)
    assert one.load() == []
    payloads = [f"{n}".rjust(size, "-").encode() for n in range(count)]
    for payload in payloads:
        one.append(payload, lambda payload=payload: payload)
    return system, payloads


def test_what_is_appended_is_found_again():
    """F85."""
    system, payloads = written()
    one = journal(system)
    assert one.load() == payloads
    size = one.nbytes
    one.append(b"more", lambda: b"")
    assert one.nbytes > size
    assert journal(system).load() == [*payloads, b"more"]
    assert system.content(HERE / JOURNAL_NAMES[0]) == system.content(HERE / JOURNAL_NAMES[1])


def test_a_journal_that_has_grown_is_written_anew():
    """It grows to 64 KiB, or to four times what it has to say."""
    system, _ = written(1)
    one = journal(system)
    one.load()
    largest = 0
    for n in range(2_000):
        one.append(b"x" * 100, lambda n=n: b"all of %d" % n)
        largest = max(largest, one.nbytes)
    assert 60_000 < largest <= 65_536
    assert journal(system).load()[0].startswith(b"all of ")
    anew = []
    while not anew:
        one.append(b"x" * 100, lambda: anew.append(one.nbytes) or b"l" * 60_000)
    while one.nbytes < 200_000:
        one.append(b"x" * 1_000, lambda: pytest.fail("too early"))


def test_a_file_cut_at_any_byte_or_missing_loses_nothing():
    """T4, F85: the other one has everything."""
    system, payloads = written(4)
    whole = {name: bytes(system.content(HERE / name)) for name in JOURNAL_NAMES}
    for name in JOURNAL_NAMES:
        for size in range(len(whole[name])):
            system.replace(HERE / name, whole[name][:size])
            one = journal(system)
            assert one.load() == payloads, (name, size)
        one.append(b"more", lambda: b"everything")
        assert journal(system).load() == [b"everything"]
        for other in JOURNAL_NAMES:
            system.replace(HERE / other, whole[other])
        system.unlink(HERE / name)
        assert journal(system).load() == payloads
        system.replace(HERE / name, whole[name])


def test_a_flipped_bit_anywhere_loses_nothing():
    """T3, F85."""
    system, payloads = written(4)
    for name in JOURNAL_NAMES:
        whole = bytes(system.content(HERE / name))
        for at in range(len(whole)):
            for bit in (0, 5):
                damaged = bytearray(whole)
                damaged[at] ^= 1 << bit
                system.replace(HERE / name, damaged)
                assert journal(system).load() == payloads, (name, at)
        system.replace(HERE / name, whole)


def test_what_neither_file_has_is_damage():
    """T3, F85: the same frame is damaged in both, and a later one gives evidence of it."""
    system, payloads = written(4)
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + 80 + -(-len(payload) // 8) * 8)
    whole = bytes(system.content(HERE / JOURNAL_NAMES[0]))
    for at in range(ends[3]):
        for name in JOURNAL_NAMES:
            damaged = bytearray(whole)
            damaged[at] ^= 4
            system.replace(HERE / name, damaged)
        with pytest.raises(JournalDamaged, match="damaged at byte") as caught:
            journal(system).load()
        assert caught.value.path.name in JOURNAL_NAMES


def test_an_append_costs_one_sync_and_each_file_has_its_turn():
    """F85: what is acknowledged is durable in one of the files, and what was before it in the other one."""
    system, _ = written(1)
    one = journal(system)
    one.load()
    system.trace = []
    for n in range(6):
        one.append(b"%d" % n, lambda: b"")
    syncs = [line.split()[2] for line in system.trace if " sync " in line]
    assert sorted(syncs) == [JOURNAL_NAMES[0]] * 3 + [JOURNAL_NAMES[1]] * 3
    assert all(a != b for a, b in itertools.pairwise(syncs))


def test_frames_of_both_files_are_put_together():
    """T1, F85: of two frames that one file had not on the medium yet, a power cut may leave the second; the other has the first."""
    system, payloads = written(6)
    whole = bytes(system.content(HERE / JOURNAL_NAMES[0]))
    size = len(whole) // 6
    for name, other in (JOURNAL_NAMES, JOURNAL_NAMES[::-1]):
        for hole in range(1, 5):
            system.replace(HERE / name, whole[: hole * size] + bytes(size) + whole[(hole + 1) * size :])
            system.replace(HERE / other, whole[: (hole + 1) * size])
            one = journal(system)
            assert one.load() == payloads
            one.append(b"more", lambda: b"everything")
            assert journal(system).load() == [b"everything"]


def test_two_files_of_which_neither_begins_are_damage():
    """T4: files come into being whole."""
    system, _ = written(1)
    for content in (b"", b"x" * 200, bytes(100)):
        for name in JOURNAL_NAMES:
            system.replace(HERE / name, content)
        with pytest.raises(JournalDamaged):
            journal(system).load()


def test_a_journal_of_another_log_is_damage():
    system, _ = written(2)
    with pytest.raises(JournalDamaged):
        journal(system, UUID(int=8)).load()


def acked(system, operation, how):
    """Appends until the disk fails at an operation; answers what was acknowledged, and what was tried last."""
    system.faults[operation] = how
    done, tried = [], b""
    one = journal(system)
    try:
        one.load()
        for n in range(30):
            tried = b"payload %02d" % n + b"." * (n * 50 % 700)
            told = msgspec.json.encode([list(map(bytes.decode, done)), tried.decode()])
            one.append(tried, lambda told=told: told)
            done.append(tried)
    except (OSError, PowerCut):
        pass
    return done, tried


def flat(payloads):
    """The payloads that were appended, whether the journal was written anew or not."""
    found = []
    for payload in payloads:
        if payload.startswith(b"["):
            before, last = msgspec.json.decode(payload)
            found += [one.encode() for one in (*before, last)]
        else:
            found.append(payload)
    return found


@pytest.mark.parametrize("how", ["crash", "EIO", "ENOSPC", "short"])
def test_whatever_the_disk_does_what_was_acknowledged_is_there(how):
    """T1, T2, T5, F85: a fault at each operation, then a power cut: at most the write in progress is missing."""
    operations = SimulatedFileSystem(1)
    acked(operations, -1, how)
    for operation in each(range(1, operations.operations + 1)):
        for seed in range(3):
            system = SimulatedFileSystem(seed)
            done, tried = acked(system, operation, how)
            system.power_cut()
            found = flat(journal(system).load())
            assert found in (done, [*done, tried]), (operation, seed)


def test_a_write_after_an_error_goes_to_new_files():
    """T5: nobody knows what of the old ones is on the medium."""
    for operation in range(1, 40):
        for seed in range(3):
            system = SimulatedFileSystem(seed)
            one = journal(system)
            one.load()
            system.faults[operation] = "EIO"
            done = []
            for n in range(12):
                payload = b"payload %02d" % n
                told = [*done, payload]
                for _ in range(2):
                    try:
                        one.append(payload, lambda told=told: b"\n".join(told))
                        break
                    except OSError:
                        pass
                done.append(payload)
            system.power_cut()
            assert b"\n".join(journal(system).load()).split(b"\n") == done, (operation, seed)
