"""Test doubles for plugins, and a whole Palinurus in one process."""
