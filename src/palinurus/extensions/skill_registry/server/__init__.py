"""A registry of skills that anyone can host: plain files in a folder, and the ClawHub HTTP API before them."""
