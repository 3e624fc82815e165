"""What a server tells to those who watch it: the table of metrics, as Prometheus and OpenTelemetry want them, and logs."""
