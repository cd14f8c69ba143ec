"""Readers of agents whose transcripts are plain lines: Claude Code, Codex, nanobot, Hermes."""
