"""The gateway: one process, every door. HTTP and WebSocket on one port, over the operations that exist."""
