"""How changes leave the program, and arrive in another."""
