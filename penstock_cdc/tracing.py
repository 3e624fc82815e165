"""Spans of OpenTelemetry for commits and deliveries, and the figures of a server as its metrics; it needs the extra ``otel``."""

from publishers.tracing import CommitSpans, DeliverySpans
from transports.telemetry.otel import observe

__all__ = ["CommitSpans", "DeliverySpans", "observe"]
