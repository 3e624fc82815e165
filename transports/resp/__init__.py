"""The Redis protocol (RESP2 and RESP3) on a port of its own: Kora's CDC commands, for stock Redis clients."""
