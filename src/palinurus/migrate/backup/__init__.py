"""A home in one file, taken while it is lived in: made, verified, restored into a fresh place."""
