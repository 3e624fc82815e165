"""What is written for a log runs with a log in the process and with one of a server: `publishers.log.interface`."""

import inspect
from contextlib import nullcontext

import pytest

from penstock_cdc import ChangeLog, Content, Criterion, connect, remove, upsert
from penstock_cdc.errors import InvalidOption, PenstockError
from penstock_cdc.types import Log, RemoteLog
from tests.transports.server.test_appending import WRITERS

ORDERS = Criterion(entity_types={"order"})


@pytest.fixture(params=["in process", "of a server"])
def either(request, log, serving):
    """Opens the same log, here or there."""
    if request.param == "in process":
        return lambda: nullcontext(log)
    return lambda: connect(serving(authorise=WRITERS).url)


async def read(log, count, **reading):
    found = []
    async for change in log.changes(ORDERS, **reading):
        found.append(change)
        if len(found) == count:
            return found
    return found


async def test_what_is_committed_is_delivered(either):
    async with either() as log:
        done = await log.commit_async(
            [upsert("order", "1", {"total": 1})], meta={"user": "ann"}, producer=("etl", 1)
        )
        again = await log.commit_async([upsert("order", "1", {"total": 1})], producer=("etl", 1))
        assert (done.version, done.duplicate, again.version, again.duplicate) == (1, False, 1, True)
        async with log.transaction(meta={"user": "bob"}) as tx:
            tx.upsert("order", "2", {"total": 2})
            tx.remove("order", "1")
        assert tx.commit.version == 2
        found = await read(log, 3, since="earliest", until=2, content=Content.BODY)
        assert [(one.operation.name, one.key, one.body) for one in found] == [
            ("UPSERT", "1", {"total": 1}), ("UPSERT", "2", {"total": 2}), ("REMOVE", "1", None),
        ]  # fmt: skip
        (last,) = await read(log, 1, since=found[1].after, fields=["total"], content=Content.BODY)
        assert last == found[2]


async def test_what_contradicts_an_expectation_is_refused(either, log):
    async with either() as opened:
        await opened.commit_async([upsert("order", "1", {})])
        seen = log.token(log.head)
        await opened.commit_async([remove("order", "1")])
        with pytest.raises(PenstockError) as refused:
            await opened.commit_async([upsert("order", "1", {})], expect=(seen, [("order", "1")]))
        assert not refused.value.retryable
        with pytest.raises(InvalidOption):
            opened.changes(since=1.5)


def test_both_have_the_arguments_of_the_interface():
    """Mypy holds the types; this holds the defaults, and that nothing has another name."""
    for name, method in vars(Log).items():
        if name.startswith("_"):
            continue
        for kind in (ChangeLog, RemoteLog):
            theirs = inspect.signature(getattr(kind, name)).parameters
            for one in list(inspect.signature(method).parameters.values())[1:]:
                if one.name in theirs:
                    assert theirs[one.name].default == one.default, (kind, name, one)
                else:
                    assert any(other.kind is other.VAR_KEYWORD for other in theirs.values()), (
                        kind,
                        name,
                        one,
                    )
