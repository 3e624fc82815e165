from tests.harness.leftovers import arrow_has_its_pipe

__all__ = ["arrow_has_its_pipe"]
