"""The Redis protocol (RESP2 and RESP3) on its own port: Kora's CDC commands, for stock Redis clients."""
