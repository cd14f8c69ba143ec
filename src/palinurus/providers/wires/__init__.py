"""One file a wire: how each provider's format is written and read, and how it fails."""
