"""Every way to commit at once, beside everything that reads and tidies: ``python -m tests.soak --commits --minutes 20``.

The processes and the judge are those of `tests.history`: each acknowledged commit is in the log once, at its version;
subscribers, followers, the group, the slot, the state and a fresh reader agree; nothing raises and nothing hangs.
"""

# ruff: noqa: T201 - what a run has found is there to be read
import argparse
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import Final

from tests.history.run import Plan, play

__all__ = ["POLICIES", "SCENES", "main"]

POLICIES: Final = ("always", "os", "interval")
ROUND: Final = 15.0
"""Seconds of a round, each of which has a log of its own; a longer one would take longer to judge, and find no more."""
ALONE: Final = Plan(
    pace=0.001, witnesses=0, parties=0, fault=inf, patience=30.0, options={"retain_bytes": None}
)
"""Commits and nothing beside them, with pauses of up to two milliseconds."""
EVERYTHING: Final = replace(
    ALONE,
    writers={"produce": 2, "transact": 2, "submit": 2, "on_a_loop": 2, "columns": 1, "expect": 1, "withhold": 1},
    outsiders={"websocket": 1, "http": 1, "graphql": 1, "group": 2},
    pace=0.01,
    witnesses=8,
    consumers=True,
    options={"state": True, "segment_age": 0.1},
)  # fmt: skip
SCENES: Final[dict[str, Plan]] = {
    "late callers": replace(ALONE, writers={"transact": 4, "submit": 2}),
    "submitters": replace(ALONE, writers={"submit": 8}),
    "appenders": replace(ALONE, writers={"transact": 2}, outsiders={"websocket": 1, "http": 1, "graphql": 1}),
    "closed again and again": replace(
        ALONE,
        writers={"transact": 2, "submit": 2, "on_a_loop": 1, "columns": 1, "withhold": 1},
        reopens=True,
    ),
    "everything": EVERYTHING,
    "everything, killed": replace(EVERYTHING, fault=0.8),
    "the owner killed": replace(EVERYTHING, fault=0.8, victims=["writer"]),
}


def main(arguments: Sequence[str]) -> int:
    """Plays each scene under each policy in turn, each with a fresh seed; goes on after a fault, and tells of all at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak --commits", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all, without the judging")
    parser.add_argument("--round", type=float, default=ROUND, help="seconds over one log")
    parser.add_argument("--scene", choices=SCENES, action="append", help="only this one; all by default")
    parser.add_argument("--sync", choices=POLICIES, action="append", help="only this policy; all by default")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; fresh by default")
    chosen = parser.parse_args(arguments)
    rounds = list(product(chosen.scene or SCENES, chosen.sync or POLICIES))
    seed = secrets.randbelow(1 << 32) if chosen.seed is None else chosen.seed
    faults: list[str] = []
    for number in range(max(len(rounds), round(chosen.minutes * 60 / chosen.round))):
        scene, sync = rounds[number % len(rounds)]
        drawn = seed + number
        plan = replace(SCENES[scene], seconds=chosen.round, sync=sync, on_disk=drawn % 2 == 1)
        name = f"{scene} under {sync}, seed {drawn}{' on a disk' * plan.on_disk}"
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        try:
            report = play(drawn, plan)
        except AssertionError as error:
            print(f"FAULT in {name}: {error} {getattr(error, '__notes__', '')}", flush=True)
            faults.append(name)
        else:
            faults += [name] if report.violations else []
    print(f"{number + 1} rounds, {len(faults)} with faults:", *faults or ["none"], sep="\n  ")
    return 1 if faults else 0
