"""Who may connect, and what they may see."""
