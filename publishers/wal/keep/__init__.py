"""What stays on the disk, and for how long: holds, retention, hard links."""
