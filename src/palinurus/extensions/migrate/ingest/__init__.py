"""A home, distilled into a wiki of markdown pages that cite their sources."""
