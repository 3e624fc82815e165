"""The change log: one write path, its readers, its subscribers, and what it says of itself."""
