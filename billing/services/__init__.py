"""Changes of billing: each owns its transaction, its lock, its check and its audit event."""
