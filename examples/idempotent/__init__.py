"""A consumer that may see a record twice and does its work once. The page: docs/examples/idempotent.md."""
