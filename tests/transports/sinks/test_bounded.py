"""Sockets whose calls have a bound."""

import socket

import pytest

from transports.sinks.bounded import AnswerBound, BoundedSocket


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_reads_and_writes_share_the_time_of_a_call(pair):
    ours, theirs = pair
    bound = AnswerBound(0.05, 10**9)
    bounded = BoundedSocket(ours, bound)
    bounded.sendall(b"ask")
    assert theirs.recv(10) == b"ask"
    theirs.sendall(b"abc")
    assert bounded.recv(10) == b"abc"

    def dripped():
        while True:
            theirs.sendall(b"x")
            bounded.recv_into(bytearray(1))

    with pytest.raises(TimeoutError):
        dripped()
    for late in (
        lambda: bounded.recv(1),
        lambda: bounded.recv_into(bytearray(1)),
        lambda: bounded.sendall(b""),
    ):
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            late()
    bound.begin()
    theirs.sendall(b"y")
    assert bounded.recv(10)


def test_bytes_of_a_call_are_counted_however_they_are_read(pair):
    ours, theirs = pair
    bound = AnswerBound(30.0, 5)
    bounded = BoundedSocket(ours, bound)
    theirs.sendall(b"123456")
    assert bounded.recv(3) == b"123"
    with pytest.raises(OSError, match="larger than 5 bytes"):
        bounded.recv_into(bytearray(3))
    bound.begin()
    theirs.sendall(b"12")
    assert bounded.recv_into(bytearray(3)) == 2


def test_the_time_of_one_read_stays_that_of_the_socket(pair):
    ours, theirs = pair
    bounded = BoundedSocket(ours, AnswerBound(30.0, 100))
    bounded.settimeout(0.01)
    with pytest.raises(TimeoutError):
        bounded.recv(1)
    assert bounded.gettimeout() == 0.01
    bounded.settimeout(0)
    with pytest.raises(BlockingIOError):
        bounded.recv(1)
    theirs.sendall(b"z")
    assert bounded.recv(1) == b"z"
