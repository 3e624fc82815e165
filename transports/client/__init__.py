"""The Python client: a remote log, and the reconnecting connection beneath it."""
