"""The web tools, web_fetch and web_search. Every address is checked before it is reached."""
