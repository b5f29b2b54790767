"""A database's changes as topics, and tables made of them elsewhere. The page: docs/examples/cdc.md."""
