"""Record batches to Arrow and back: what Fetch returns as columns of Spark, rows as what Produce takes."""
