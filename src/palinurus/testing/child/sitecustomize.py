"""Python runs this as it starts in a process that a test has started: its event loops are watched, too."""

from contextlib import suppress

with suppress(ImportError):  # a Python without our package may be given the same variables
    from palinurus.testing.loop_time import watch_child

    watch_child()
