"""The wire formats: events are encoded once and shared; messages are parsed and validated."""
