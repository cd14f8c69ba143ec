"""Skills from a registry: looked for, fetched into quarantine, judged by a person, pinned, and watched for drift."""
