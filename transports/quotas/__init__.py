"""What clients may cost a server: threads, and the weight of criteria."""
