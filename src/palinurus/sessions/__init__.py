"""Sessions and their append-only transcripts."""
