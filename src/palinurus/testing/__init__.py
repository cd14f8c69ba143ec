"""The fakes we ship, and a whole Palinurus in one process."""
