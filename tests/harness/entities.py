"""The oracle for the state of a log: applies changes one by one, by the event model."""

import random
from collections.abc import Iterable
from typing import Any

from penstock_cdc.fields import set_field
from penstock_cdc.mutations import expire
from publishers import Area, Change, ChangeLog, Content, Mutation, Operation, rekey, remove, truncate, upsert

Entities = dict[tuple[str, str], Any]


def apply(entities: Entities, change: Change) -> None:
    """Applies one change."""
    if change.area is not Area.DATA or change.field is not None:
        return
    if change.operation is Operation.TRUNCATE:
        for place in [place for place in entities if place[0] == change.entity_type]:
            del entities[place]
    elif change.operation in {Operation.REMOVE, Operation.EXPIRE}:
        entities.pop((change.entity_type, change.key), None)
    else:
        entities[change.entity_type, change.key] = change.body


def replayed(changes: Iterable[Change]) -> Entities:
    """Returns the state after applying all changes to an empty one."""
    entities: Entities = {}
    for change in changes:
        apply(entities, change)
    return entities


def state_of(log: ChangeLog, until: int | None = None) -> Entities:
    """Returns the state at a version (None: the newest), from the changes of the whole log."""
    changes = log.history(since=log.oldest, limit=1_000_000, content=Content.BODY).changes
    return replayed(change for change in changes if until is None or change.version <= until)


def some(chance: random.Random, number: int, types: str = "abc", keys: int = 40) -> list[Mutation]:
    """Returns 1 to 5 random mutations of any kind."""
    made = []
    for _ in range(chance.randint(1, 5)):
        kind, key = chance.choice(types), f"{chance.randrange(keys):03}"
        dice = chance.random()
        if dice < 0.6:
            made.append(upsert(kind, key, {"n": number}))
        elif dice < 0.7:
            made.append(upsert(kind, key, {"n": number, "f": 1}, changes=[set_field("f", 1)]))
        elif dice < 0.82:
            made.append(remove(kind, key))
        elif dice < 0.88:
            made.append(expire(kind, key))
        elif dice < 0.97:
            made.append(rekey(kind, key, f"{chance.randrange(keys):03}x", {"n": number}))
        else:
            made.append(truncate(kind))
    return made
