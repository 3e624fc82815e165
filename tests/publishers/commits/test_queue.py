"""Which commit leads, and when: the queue without threads."""

import pytest

from publishers import LogOptions
from publishers.commits.leadership import LEADERSHIP, Leadership, LeadershipEvent
from publishers.commits.pending import Pending
from publishers.commits.queue import CommitQueue


class Waiting(Pending):
    """A commit in the queue whose thread sleeps."""

    def __init__(self):
        super().__init__(None, durable=True)
        self.appointed = 0
        self.asleep = True

    def appoint(self):
        self.appointed += 1


@pytest.fixture
def now():
    """A clock whose hands the test holds."""
    return [0.0]


@pytest.fixture
def queue(now):
    return CommitQueue(LogOptions(), deferring=False, now=lambda: now[0])


def entered(queue, count):
    made = [Waiting() for _ in range(count)]
    for one in made:
        queue.enter(one)
    return made


def led(queue, count):
    """A leader, and the others of the group that it has written."""
    leader, *others = entered(queue, count)
    leader.asleep = False
    queue.begin(leader, [])
    return leader, others


def test_the_next_leader_is_appointed_once_all_threads_of_the_group_before_have_run(queue, now):
    """F40: so those that commit again at once are in one group with those that waited meanwhile."""
    leader, others = led(queue, 3)
    (first,) = entered(queue, 1)
    queue.end(leader, [leader, *others], until=1.0)
    (later,) = entered(queue, 1)
    queue.returned(others[0])
    assert not first.appointed
    queue.returned(others[1])
    assert (first.appointed, later.appointed) == (1, 0)
    queue.returned(first)
    assert queue.leader is first


def test_no_group_waits_longer_for_threads_than_the_one_before_took_to_be_written(queue, now):
    leader, others = led(queue, 3)
    queue.end(leader, [leader, *others], until=1.0)
    (first,) = entered(queue, 1)
    now[0] = 1.0
    queue.returned(others[0])
    assert first.appointed == 1
    queue.returned(others[1])
    assert (queue.leader, first.appointed) == (first, 1)


def write_again(queue, now, size, comes_back):
    """A group is written in a second, and so many of its threads run within another one; whether they were waited for."""
    leader, others = led(queue, size)
    queue.end(leader, [leader, *others], until=now[0] + 1.0)
    waited = queue.state is Leadership.RETURNING
    for one in others[:comes_back]:
        queue.returned(one)
    now[0] += 1.0
    for one in others[comes_back:]:
        queue.returned(one)
    assert queue.state is Leadership.FREE
    return waited


def test_no_more_threads_are_waited_for_than_were_found_to_come_in_time(queue, now):
    assert write_again(queue, now, 12, comes_back=11)
    assert write_again(queue, now, 12, comes_back=4)
    assert not write_again(queue, now, 12, comes_back=4)
    assert write_again(queue, now, 10, comes_back=9)
    assert not write_again(queue, now, 40, comes_back=39)
    tried = [write_again(queue, now, 12, comes_back=11) for _ in range(20)]
    assert tried == sorted(tried)  # not for some time, and then again
    assert {*tried} == {False, True}


def test_a_single_thread_that_comes_late_is_not_waited_for_again(queue, now):
    """Where a write takes no time there is nothing to gain."""
    tried = [write_again(queue, now, 2, comes_back=0) for _ in range(40)]
    assert tried[:16] == [True] * 16
    assert sum(tried[16:]) <= 4


def test_nobody_is_waited_for_behind_a_commit_that_was_alone(queue, now):
    leader, _ = led(queue, 1)
    queue.end(leader, [leader], until=1.0)
    assert queue.state is Leadership.FREE
    (first,) = entered(queue, 1)
    assert first.appointed == 1


def test_a_commit_that_comes_later_waits_for_no_thread(queue, now):
    """Invariant 13: a thread that never says that it runs keeps nobody waiting."""
    leader, others = led(queue, 3)
    queue.end(leader, [leader, *others], until=1.0)
    (first,) = entered(queue, 1)
    now[0] = 1.0
    (second,) = entered(queue, 1)
    assert (first.appointed, second.appointed) == (1, 0)


def test_a_thread_that_is_interrupted_where_it_is_waited_for_appoints_the_next_leader(queue, now):
    """Invariant 13."""
    leader, (other,) = led(queue, 2)
    queue.end(leader, [leader, other], until=1.0)
    (first,) = entered(queue, 1)
    queue.leave(other)
    assert first.appointed == 1


def test_a_thread_that_waits_no_longer_is_not_waited_for(queue, now):
    """Invariant 13: an interrupt may end its wait, and a second one the wait for those who write for it."""
    leader, (gone, other) = led(queue, 3)
    queue.returned(gone)
    queue.end(leader, [leader, gone, other], until=1.0)
    queue.returned(other)
    assert queue.state is Leadership.FREE


def test_the_larger_group_is_written_while_the_smaller_one_is_published(queue, now):
    leader, others = led(queue, 2)
    queue.pass_on(leader, 2)
    (first,) = entered(queue, 1)
    queue.pass_on(leader, 2)
    assert queue.leader is leader
    entered(queue, 2)
    queue.pass_on(leader, 2)
    assert first.appointed == 1
    queue.end(leader, [leader, *others], until=1.0)
    assert queue.leader is first


def test_an_entry_that_was_not_appointed_cannot_lead(queue):
    """F191: nor can a leader begin twice; the queue stays as it is."""
    leader, other = entered(queue, 2)
    group = []
    with pytest.raises(RuntimeError, match="must not lead"):
        queue.begin(other, group)
    queue.begin(leader, group)
    with pytest.raises(RuntimeError, match="must not lead"):
        queue.begin(leader, group)
    assert (queue.leader, queue.state, group) == (leader, Leadership.LEADING, [leader, other])


def test_a_commit_that_skips_the_queue_moves_as_the_table_says(queue):
    """F191: its two rows are inlined."""
    (skips,) = LEADERSHIP.of(Leadership.FREE, LeadershipEvent.SKIP)
    *_, yields = LEADERSHIP.of(Leadership.LEADING, LeadershipEvent.YIELD)
    alone = object()
    assert queue.skip(alone)
    assert (queue.state, queue.leader, skips.when) == (skips.to, alone, ())
    assert not queue.skip(object())
    queue.pass_on(alone)
    assert (queue.state, queue.leader, yields.when) == (yields.to, None, ())
    assert not any(
        LEADERSHIP.of(state, LeadershipEvent.SKIP) for state in Leadership if state is not Leadership.FREE
    )
