"""How changes reach subscribers: shared publishers with their rings, cursors and delivery groups, and the log's replayer."""
