"""The table of planted faults."""

from typing import Final

from tests.mutants.planted.changing import CHANGING
from tests.mutants.planted.choosing import CHOOSING
from tests.mutants.planted.delivering import DELIVERING
from tests.mutants.planted.fault import Fault
from tests.mutants.planted.keeping import KEEPING
from tests.mutants.planted.reaching import REACHING
from tests.mutants.planted.reading import READING
from tests.mutants.planted.sending import SENDING
from tests.mutants.planted.serving import SERVING

__all__ = ["ELSEWHERE", "EQUIVALENT", "FAULTS"]

FAULTS: Final[tuple[Fault, ...]] = (
    *CHANGING,
    *CHOOSING,
    *DELIVERING,
    *KEEPING,
    *REACHING,
    *READING,
    *SENDING,
    *SERVING,
)
_REASONS: Final = {
    "a paused subscription of a group is still served by the group": "the ring takes a paused cursor off its bench, "
    "and the next wake-up recalls the flag",
    "subscribers of a log that is dropped are told that it is complete": "the store explains each error of a log that it has dropped",
    "lines beyond the place stay in a file after a crash": "the same lines overwrite them, and what is behind is cut before a file gets its name",
}
EQUIVALENT: Final = {fault: _REASONS[fault.breaks] for fault in FAULTS if fault.breaks in _REASONS}
"""Faults that no user can notice, with the reason."""
ELSEWHERE: Final[dict[str, str]] = {"F44": "tests/mutants/listing.py"}
"""Rows without a fault here, each with the place where its mutants are."""
