"""Pure data: changes, positions, and their errors."""
