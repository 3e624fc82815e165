"""Recovery after a crash, and truncation of withheld transactions."""
