"""`odradek rebalance`: `balance` plans the moves, and is pure; `carry_out` executes them."""
