"""Readings whose order was lost over partitions, put in order again. The page: docs/examples/reordered.md."""
