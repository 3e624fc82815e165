"""The metrics table and delivery spans for OpenTelemetry (extra ``otel``); uses the API only, the SDK is the application's choice.

Metrics have the names of the table; counters omit ``_total``, which exporters append. A histogram becomes three counters,
because the observations are already aggregated: ``_bucket`` with the attribute ``le``, ``_count`` and ``_sum``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from publishers.tracing import DeliverySpans
from transports.telemetry.table import TABLE, Metric, MetricKind, read_buckets, samples

if TYPE_CHECKING:
    from publishers.fanout.batch import Batch

__all__ = ["Observed", "observe"]

Figures = Callable[[], Mapping[str, Any]]


class Observed(Protocol):
    """An observable server, as ``serve`` returns it."""

    def figures(self) -> Mapping[str, Any]:
        """Returns its statistics, from any thread."""
        ...

    def observe_deliveries(self, delivered: "Callable[[Batch, str], None] | None") -> None:
        """Sets a callback for each batch that is written to a client, with the name of its log."""
        ...


def observe(
    server: Observed,
    *,
    meters: metrics.MeterProvider | None = None,
    tracers: trace.TracerProvider | None = None,
) -> None:
    """Exports metrics and spans of a server through OpenTelemetry until it stops; call it once per server.

    Args:
        server: The running server.
        meters: The meter provider; the provider of the process if None.
        tracers: The tracer provider for the spans, one for each sent batch that was traced; likewise.
    """
    meter = metrics.get_meter("penstock", meter_provider=meters)
    for metric in TABLE:
        name = metric.name.removesuffix("_total")
        if metric.kind is MetricKind.GAUGE:
            meter.create_observable_gauge(name, [_reading(server.figures, metric)], metric.unit, metric.what)
        elif metric.kind is MetricKind.COUNTER:
            meter.create_observable_counter(
                name, [_reading(server.figures, metric)], metric.unit, metric.what
            )
        else:
            for part in ("bucket", "count", "sum"):
                unit = metric.unit if part == "sum" else "1"
                read = _part(server.figures, metric, part)
                meter.create_observable_counter(f"{name}_{part}", [read], unit, metric.what)
    server.observe_deliveries(DeliverySpans(tracers).sent)


def _figures_of(figures: Figures) -> Mapping[str, Any]:
    """Returns the statistics; empty if the server has stopped or does not answer in time."""
    try:
        return figures()
    except Exception:  # noqa: BLE001 - whatever it is, it must not end the export of other metrics
        return {"logs": {}}


def _reading(figures: Figures, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_options: CallbackOptions) -> Iterable[Observation]:
        for values, value in samples(metric, _figures_of(figures)):
            yield Observation(value, dict(zip(metric.all_labels, values, strict=True)))

    return read


def _part(figures: Figures, metric: Metric, part: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_options: CallbackOptions) -> Iterable[Observation]:
        for name, buckets, total in read_buckets(metric, _figures_of(figures)):
            if part == "bucket":
                yield from (Observation(value, {"log": name, "le": bound}) for bound, value in buckets)
            else:
                yield Observation(total if part == "sum" else buckets[-1][1], {"log": name})

    return read
