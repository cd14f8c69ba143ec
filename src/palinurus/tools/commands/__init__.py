"""Analyses commands: which programs a shell string would start, and whether all of them are allowed.

Nothing here runs anything. A command is understood only if we can run it ourselves, without a shell, exactly as a POSIX
shell would. Every other command is Opaque and needs approval. Read judge.py first.
"""
