"""Change data capture: committed changes of a PostgreSQL database become records of a topic for each table.

`pgoutput` reads the messages of PostgreSQL's logical decoding, `database` has the publication, the replication slot and
the snapshot, `values` and `formats` make records of rows, and `capture` writes them in Kafka transactions.
"""
