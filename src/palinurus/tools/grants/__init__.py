"""What a person has allowed for longer than once, and the patterns that say how much."""
