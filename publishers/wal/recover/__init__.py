"""From whatever a crash has left to a log that takes commits, and truncating what must not stay."""
