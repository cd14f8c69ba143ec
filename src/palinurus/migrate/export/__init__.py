"""Carry a home away: as a tree that OpenClaw can read too, or as one file, each in a form that comes back unchanged."""
