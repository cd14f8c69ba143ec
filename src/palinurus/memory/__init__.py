"""Markdown in, cited snippets out."""
