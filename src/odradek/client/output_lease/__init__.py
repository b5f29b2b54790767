"""An output lease decides which of several consumer groups writes an output, and at which offset another takes over.

`lease` has the names and the encoding of a lease, `offsets` its part of a TxnOffsetCommit request, `transfer` its
administration. `pyspark_odradek.standby` is the Spark side: how a query reads and commits with it.
"""
