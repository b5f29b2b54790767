"""What `odradek rebalance` does: `balance` plans how brokers get even, and is pure; `carry_out` does it."""
