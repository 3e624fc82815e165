"""How changes reach subscribers: shared publishers with their rings, cursors and groups, and the replayer of a log."""
