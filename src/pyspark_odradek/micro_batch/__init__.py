"""One micro-batch as any sink sees it: its tasks, Spark's plan of it, and the rows that tasks stage."""
