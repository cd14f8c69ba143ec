"""The WebSocket: its methods, its clients and their requests."""
