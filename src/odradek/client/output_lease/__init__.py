"""An output lease: which one of several consumer groups writes an output, and where it is handed over.

`lease` has the names and the text of a lease, `offsets` its place in a TxnOffsetCommit request, `transfer` what an
administrator does with it. The Spark side is `pyspark_odradek.standby`: how a query reads and commits by it.
"""
