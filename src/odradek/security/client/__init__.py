"""Security of a client of ours: a command or a query of Spark, in a process of its own. No node imports this."""
