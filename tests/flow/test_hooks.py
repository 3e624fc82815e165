import gc
import logging
import weakref

from flow import hooks


class Subscriber:
    pass


def failing(subscriber):
    local = subscriber
    raise ValueError(str(bool(local)))


def caught(subscriber):
    try:
        failing(subscriber)
    except ValueError as error:
        return error
    raise AssertionError


def test_by_default_a_dropped_error_is_logged_with_its_traceback(caplog):
    subscriber = Subscriber()
    hooks.report(caught(subscriber), subscriber)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.name == "flow"
    assert "test_hooks.Subscriber" in record.getMessage()
    assert "in failing" in caplog.text


def test_neither_the_log_nor_the_error_keeps_the_subscriber(caplog):
    def run():
        subscriber = Subscriber()
        error = caught(subscriber)
        hooks.report(error, subscriber)
        reference = weakref.ref(subscriber)
        del subscriber  # a traceback keeps the frames of callers too
        return error, reference

    error, reference = run()
    gc.collect()
    assert reference() is None
    assert caplog.records
    assert error.__traceback__ is not None


def test_chains_and_groups_of_errors_keep_nothing_either(dropped):
    def run():
        subscriber = Subscriber()
        first = caught(subscriber)
        second = caught(subscriber)
        second.__cause__ = first
        first.__context__ = second
        group = ExceptionGroup("several", [second])
        hooks.report(group, subscriber)
        reference = weakref.ref(subscriber)
        del subscriber
        return group, reference

    group, reference = run()
    gc.collect()
    assert reference() is None
    assert dropped.errors == [group]


def test_the_hook_can_be_replaced(dropped):
    error = ValueError()
    hooks.report(error, Subscriber())
    assert dropped.errors == [error]


def test_a_hook_that_raises_is_logged_and_harms_nobody(caplog, monkeypatch):
    def broken(error, subscriber):
        raise LookupError

    monkeypatch.setattr(hooks, "on_dropped_error", broken)
    hooks.report(ValueError(), Subscriber())
    assert "LookupError" in caplog.text
