"""What writers ask for: operations, field-level changes, and the form in which they are stored."""
