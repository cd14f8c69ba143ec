"""Who may use which tool: names and groups, the scopes of a config, and one pure decision over them."""
