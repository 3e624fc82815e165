"""The publish gate: what a publishing that fails halfway leaves to the next one."""

import threading

import pytest

import flow
from penstock_cdc.errors import LogFailed
from publishers import ChangeLog, Criterion
from tests.harness.inside import files_of, publication_of
from tests.publishers.support import Probe, everything, fill, opened, order, wait_until


def failing_once(publication, when):
    """Lets the first publishing after ``when`` fail with what the last of its transactions is made of."""
    publish, failed = publication.publish, []

    def broken():
        raise MemoryError

    def instead(transactions):
        if not failed and when():
            failed.append(transactions[-1].version)
            transactions = [*transactions[:-1], transactions[-1]._replace(blocks=broken)]
        return publish(transactions)

    publication.publish = instead
    return failed


def test_what_a_publishing_that_failed_was_to_show_is_read_from_the_log():
    """Invariants 1 and 6: one commit fails between the log and the rings, the one behind it was written already."""
    with opened() as log:
        probe, rare = Probe(first=10**6), Probe(first=10**6)
        log.changes().subscribe(probe, executor=flow.INLINE)
        log.changes(Criterion(keys={"rare"})).subscribe(rare, executor=flow.INLINE)
        fill(log, 1)

        entered = threading.Event()

        def another_is_written():
            entered.set()
            wait_until(lambda: files_of(log).appended >= 3)
            return True

        failed = failing_once(publication_of(log), another_is_written)
        lost = []

        def commit():
            try:
                log.commit([order("rare")])
            except (MemoryError, LogFailed) as error:
                lost.append(error)

        threads = [threading.Thread(target=commit) for _ in range(2)]
        for thread in threads:
            thread.start()
            assert entered.wait(60)
        for thread in threads:
            thread.join(60)
        assert failed == [2]
        assert len(lost) >= 1
        wait_until(lambda: len(probe.positions) == len(everything(log)), probe.state)
        assert probe.positions == everything(log)
        wait_until(lambda: len(rare.positions) == len(probe.positions[2:]) // 2, rare.state)


@pytest.mark.parametrize("version", [2, 3])
def test_a_follower_that_failed_to_publish_misses_nothing(version):
    """Invariants 1 and 6: it has read what it failed to show, and does not read that again."""
    with opened() as log, ChangeLog.open(log.path, read_only=True) as reader:
        probe = Probe(first=10**6)
        reader.changes().subscribe(probe)
        failed = failing_once(publication_of(reader), lambda: log.head.version > version)
        for number in range(1, 6):
            fill(log, 1)
            wait_until(lambda number=number: failed or len(probe.positions) == 2 * number, probe.state)
        fill(log, 1)
        wait_until(lambda: len(probe.positions) == len(everything(log)), probe.state)
        assert failed
        assert probe.positions == everything(log)
