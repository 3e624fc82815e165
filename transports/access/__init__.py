"""Authentication and authorisation: which clients may connect, and what they may do and see."""
