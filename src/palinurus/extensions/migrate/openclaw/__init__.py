"""The reader of OpenClaw homes, of all its three eras and its older names. It never writes into one."""
