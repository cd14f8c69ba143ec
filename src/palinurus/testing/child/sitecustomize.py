"""Python runs this at start in a process that a test has started, to watch its event loops too."""

from contextlib import suppress

with suppress(ImportError):  # a Python without our package may get the same variables
    from palinurus.testing.loop_time import watch_child

    watch_child()
