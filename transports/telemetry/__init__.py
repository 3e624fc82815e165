"""Telemetry of a server: the metrics table, its export to Prometheus and OpenTelemetry, and log lines."""
