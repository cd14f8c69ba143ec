"""What was done, what it cost, and later what was forbidden: books that are only ever added to."""
