"""HTTP: connections with limits, the web application, its routes and TLS."""
