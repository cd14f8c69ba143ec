"""Credentials: where they are kept, which one is used next, and which one rests."""
