"""Queries that share one output: the group that holds the output lease writes, the others stand by.

`source` limits what a query reads, `batches` decides what becomes of a batch's output, `commit` writes it and moves the
lease in one transaction, and `sink` is the writer that Spark calls. The lease itself, and the command that transfers
it, are in `odradek.client.output_lease`.
"""
