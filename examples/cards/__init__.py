"""Card approval: transactions in, a decision for each by rules that know the card. The page: docs/examples/cards.md."""
