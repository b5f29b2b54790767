"""Accounts as events, with read models made of them and made again. The page: docs/examples/accounts.md."""
