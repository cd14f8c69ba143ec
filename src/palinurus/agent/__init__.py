"""One turn, with its model-and-tools loop."""
