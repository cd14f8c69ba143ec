"""Hands that belong to no other room, and the registry that offers them."""
