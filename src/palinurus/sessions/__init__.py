"""What was said, appended and never rewritten."""
