"""Security of a client of ours: a command, a query of Spark, or a node that logs in to others by tokens."""
