"""WhatsApp by the Cloud API: `channel` is the adapter, `graph` its requests, `updates` what arrives."""
