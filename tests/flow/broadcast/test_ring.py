from flow.broadcast.ring import Positions, RingBuffer


def test_the_last_at_the_lowest_sequence_is_known_when_it_leaves_or_goes_forward():
    positions = Positions()
    assert positions.least(9) == 9
    for sequence in (3, 5, 3):
        positions.enter(sequence)
    assert not positions.move(5, 7)
    assert not positions.leave(3)
    assert positions.move(3, 4)
    assert (positions.least(9), positions.least(2)) == (4, 2)
    assert positions.leave(4)
    assert positions.least(9) == 7


def test_a_ring_keeps_the_newest_and_lets_go_of_the_rest():
    ring = RingBuffer(3)
    for item in range(5):
        ring.append(item)
    assert (ring.start, ring.end) == (2, 5)
    assert ring.read(2, 9) == [2, 3, 4]
    assert ring.read(4, 1) == [4]
    assert ring.read(5, 1) == []
    ring.trim(4)
    assert ring.start == 4
    assert ring.read(4, 9) == [4]
