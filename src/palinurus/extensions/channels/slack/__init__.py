"""Slack: an app of a workspace, over Socket Mode or over signed requests to the gateway."""
