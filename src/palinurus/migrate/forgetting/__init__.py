"""Forgetting: words are followed to every place that holds them, taken out, and looked for again."""
