"""The change log: one write path, its readers and subscribers, and its statistics."""
