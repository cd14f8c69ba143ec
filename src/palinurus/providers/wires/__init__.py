"""One module per wire format: requests, replies and failures."""
