"""Record batches to Arrow and back: fetched batches as columns of Spark, rows as batches to produce."""
