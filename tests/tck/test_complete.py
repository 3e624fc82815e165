"""Whatever gives or takes signals is certified: who adds something to the public face says here by which suite."""

import ast
import importlib
from pathlib import Path

import pytest

import flow
from flow import operators as op
from flow.tck import PublisherVerification, SubscriberVerification

SOURCES = "tests.tck.test_sources"
BRIDGES = "tests.tck.test_bridges"
DROPPING = "tests.tck.test_backpressure"
OPERATORS = "tests.flow.operators.test_certification"
SHARING = "tests.flow.broadcast.test_conformance"

FLOW = {
    "Broadcast": (
        SHARING,
        "TestBroadcast TestLatestBroadcast TestDropOldestBroadcast TestDropLatestBroadcast",
    ),
    "Connectable": (SHARING, "TestPublish"),
    "Drain": (SOURCES, "TestRange TestOnAPool TestOnALoopInDebugMode"),
    "aiter": (BRIDGES, "TestTheInboxOfTheIterators"),
    "empty": (SOURCES, "TestEmpty"),
    "error": (SOURCES, "TestRange"),
    "from_async_iterable": ("tests.tck.test_async_iterable", "TestOnAPlainLoop TestSignallingOnAPool"),
    "from_iterable": (SOURCES, "TestRange TestWithoutLookahead"),
    "from_observable": (BRIDGES, "TestFromObservableInline TestDropOldestObservable TestLatestObservable"),
    "generate": (SOURCES, "TestIteratorsOfUnknownLength TestGeneratorsWithoutLookahead"),
    "iter_blocking": (BRIDGES, "TestTheInboxOfTheIterators"),
    "publish": (SHARING, "TestPublish TestRefCountAsProcessor"),
    "replay": (SHARING, "TestReplay"),
    "share": (SHARING, "TestShare TestShareAsProcessor"),
    "subscribe": (BRIDGES, "TestCallbacks"),
    "subscribe_async": (BRIDGES, "TestAsyncSubscriber TestSeveralCoroutinesAtATime TestACoroutineFunction"),
    "to_observable": (BRIDGES, "TestToObservable TestThereAndBack"),
}
OP = {
    "buffer": (OPERATORS, "TestBuffer TestBufferWithTime"),
    "concat": (OPERATORS, "TestConcat"),
    "distinct_until_changed": (OPERATORS, "TestDistinctUntilChanged"),
    "filter": (OPERATORS, "TestFilter"),
    "flat_map": (OPERATORS, "TestFlatMap TestFlatMapInOrder"),
    "limit_rate": (OPERATORS, "TestLimitRate"),
    "map": (OPERATORS, "TestMap"),
    "merge": (OPERATORS, "TestMerge"),
    "on_backpressure_buffer": (DROPPING, "TestPacedBufferError TestHurriedBufferDropOldest"),
    "on_backpressure_drop": (DROPPING, "TestPacedDrop TestHurriedDrop"),
    "on_backpressure_error": (DROPPING, "TestPacedError"),
    "on_backpressure_latest": (DROPPING, "TestPacedLatest TestHurriedLatest"),
    "on_error_resume": (OPERATORS, "TestOnErrorResume"),
    "publish_on": (OPERATORS, "TestPublishOn TestPublishOnAPool"),
    "retry": (OPERATORS, "TestRetry"),
    "scan": (OPERATORS, "TestScan"),
    "skip": (OPERATORS, "TestSkip"),
    "take": (OPERATORS, "TestTake"),
    "take_while": (OPERATORS, "TestTakeWhile"),
    "tap": (OPERATORS, "TestTap"),
    "timeout": (OPERATORS, "TestTimeout"),
    "zip": (OPERATORS, "TestZip"),
}
ABOVE = {
    "ChannelFeed": ("tests.tck.test_channels", "TestChannelsInline TestChannelsThatDropTheOldest"),
    "ChangeFeed": ("tests.tck.test_feed", "TestFeedInline TestFeedOnThePoolOfTheLog"),
    "DeliveryFeed": ("tests.tck.test_group_deliveries", "TestDeliveriesInline TestDeliveriesOnAPool"),
    "ModelFeed": ("tests.tck.test_feed", "TestFeedOfObjects"),
    "RemoteDeliveries": ("tests.tck.test_group_deliveries", "TestRemoteDeliveriesInDebugMode"),
    "RemoteFeed": ("tests.tck.test_feed", "TestRemoteFeedInDebugMode"),
    "SlotFeed": ("tests.tck.test_slot_feed", "TestSlotInline TestSlotOnALoopInDebugMode"),
    "SnapshotFeed": ("tests.tck.test_snapshot_feed", "TestRowsInline TestRowsThenNothingOnAPool"),
}
ELSEWHERE = {
    "never",  # has nothing that a suite could count; see tests.tck.test_sources
    "pipe",  # applies operators, and is none
    "executor_of",
    "loop_executor",
    "hooks",
    "operators",
}


def functions(module):
    return {name for name in module.__all__ if name[0].islower()}


def test_every_source_and_bridge_is_certified():
    """F128: the native face, iterators included, keeps the rules."""
    assert functions(flow) - ELSEWHERE == {name for name in FLOW if name[0].islower()}


def test_every_operator_is_certified():
    assert functions(op) - ELSEWHERE == set(OP)


def test_every_publisher_of_the_packages_above_is_certified():
    """F128, F71: whatever class has ``subscribe(subscriber, /, ...)``."""
    root = Path(flow.__file__).parent.parent
    found = set()
    for path in (*root.glob("publishers/**/*.py"), *root.glob("transports/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(part, ast.FunctionDef) and part.name == "subscribe" and part.args.posonlyargs:
                    found.add(node.name)
    assert found == set(ABOVE)


@pytest.mark.parametrize(
    ("module", "name"),
    sorted(
        {(module, name) for module, names in (FLOW | OP | ABOVE).values() for name in names.split()},
    ),
)
def test_what_certifies_is_a_suite_that_is_collected(module, name):
    if module == BRIDGES:
        pytest.importorskip("reactivex")
    suite = getattr(importlib.import_module(module), name)
    assert issubclass(suite, PublisherVerification | SubscriberVerification)
    assert getattr(suite, "__test__", True)
