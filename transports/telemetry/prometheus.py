"""The metrics table in the text format of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from transports.errors import ExtraMissing
from transports.telemetry.table import TABLE, MetricKind, read_buckets, samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The text format that every version of Prometheus parses."""


def exposition(statistics: Mapping[str, Any]) -> bytes:
    """Returns the metrics of a server as text.

    Args:
        statistics: Its statistics, limited to the logs that the reader may see.

    Raises:
        ExtraMissing: If prometheus-client is not installed.
    """
    try:
        from prometheus_client import generate_latest  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ExtraMissing("/metrics", error.name or "prometheus_client", "server") from None
    text: bytes = generate_latest(_Collected(statistics))
    return text


class _Collected:
    """A collector for a single response, so that a process may contain any number of applications."""

    def __init__(self, statistics: Mapping[str, Any]) -> None:
        self._statistics = statistics

    def collect(self) -> "Iterator[Family]":
        from prometheus_client import core  # noqa: PLC0415 - an optional dependency

        for metric in TABLE:
            labels = list(metric.all_labels)
            if metric.kind is MetricKind.HISTOGRAM:
                histogram = core.HistogramMetricFamily(metric.name, metric.what, labels=labels)
                for name, buckets, total in read_buckets(metric, self._statistics):
                    histogram.add_metric([name], buckets, total)
                yield histogram
                continue
            make = core.CounterMetricFamily if metric.kind is MetricKind.COUNTER else core.GaugeMetricFamily
            family = make(metric.name, metric.what, labels=labels)
            for values, value in samples(metric, self._statistics):
                family.add_metric(list(values), value)
            yield family
