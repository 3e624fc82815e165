"""Pure data: what a change and a position are, and the JSON that loses nothing."""
