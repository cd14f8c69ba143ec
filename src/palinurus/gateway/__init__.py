"""The gateway: HTTP and WebSocket on one port, over the operations."""
