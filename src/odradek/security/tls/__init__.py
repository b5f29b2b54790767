"""TLS: where keys and certificates come from, the contexts of listeners and peers, and principals from certificates."""
