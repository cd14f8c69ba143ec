"""Frames of the WebSocket: their shapes, and events on their way to those who listen."""
