import flow
from flow.contracts import UNBOUNDED, BatchSubscriber, Processor, Publisher, Subscriber, Subscription
from tests.flow.probes import BatchProbe, Probe, QueueFeed


def test_unbounded_is_the_greatest_demand_of_rule_317():
    assert UNBOUNDED == 2**63 - 1


def test_what_has_the_methods_is_one():
    assert isinstance(Probe(), Subscriber)
    assert not isinstance(Probe(), BatchSubscriber)
    assert isinstance(BatchProbe(), BatchSubscriber)
    assert isinstance(flow.empty(), Publisher)
    assert not isinstance(flow.empty(), Processor)
    assert isinstance(flow.Drain(Probe(), QueueFeed()), Subscription)
    assert not isinstance(object(), Subscription)


def test_the_face_of_the_package_is_complete():
    assert all(hasattr(flow, name) for name in flow.__all__)
    assert len(set(flow.__all__)) == len(flow.__all__)
