"""HTTP: connections with limits, the web application on them, and how both are described and watched."""
