"""What the log needs of a machine: files, locks, a reserve of room, and notifications between processes."""
