"""Account balances by two queries, of which one stands by for the other. The page: docs/examples/standby.md."""
