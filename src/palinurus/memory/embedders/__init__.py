"""Embedders: implementations that turn texts into vectors."""
