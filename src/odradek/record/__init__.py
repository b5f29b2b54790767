"""Record batches of format v2: views of their headers, builders, readers, compression, control records, validation."""
