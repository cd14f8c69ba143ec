"""The web, read with tongs: web_fetch and web_search. No address is reached that was not checked."""
