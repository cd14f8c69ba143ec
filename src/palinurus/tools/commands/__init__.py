"""Understands commands: what a shell string would start, and whether somebody has allowed all of it.

Nothing here runs anything. A command is understood only if we can run it ourselves, without a shell, with the very
meaning that a POSIX shell gives it; whatever else is Opaque, and then a person is asked. Read judge.py first.
"""
