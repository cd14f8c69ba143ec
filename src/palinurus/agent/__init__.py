"""One turn, and inside it the model-and-tools loop."""
