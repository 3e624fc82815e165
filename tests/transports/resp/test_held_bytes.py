"""Which connection of a port has to go if all hold too much."""

from transports.resp.held_bytes import HeldBytes


def test_the_connection_that_holds_most_goes_of_the_address_that_holds_most():
    """F147: nobody else, however many connections an address has; as far as a quarter of the bound is free."""
    now, gone = {}, []
    held = HeldBytes(100, lambda one: now[one], lambda one: one[0], gone.append)

    def put(one, nbytes):
        now[one] = nbytes
        held.note(one, nbytes)

    put("honest", 30)
    for number in range(1, 7):
        put(f"eve{number}", 10)
    put("eve7", 11)
    assert (gone, held.total) == (["eve7", "eve1", "eve2"], 70)
    put("honest", 45)
    put("honest", 0)
    assert held.total == 40


def test_what_was_taken_meanwhile_is_measured_before_anything_goes():
    """F147."""
    now, gone = {"a": 90}, []
    held = HeldBytes(100, lambda one: now[one], lambda _one: None, gone.append)
    held.note("a", 90)
    now |= {"a": 10, "b": 80}
    held.note("b", 80)
    assert (gone, held.total) == ([], 90)
