"""The page: its files, and the way in for a browser. What the page shows it asks by the WebSocket, like any client."""
