"""Telemetry of a server.

* `table` lists the metrics, for Prometheus (`prometheus`) and OpenTelemetry (`otel`).
* `latency` and `append_figures` measure.
* `lines` formats the log.
"""
