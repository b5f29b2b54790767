"""The exactly-once topic sink whose tasks write to the brokers themselves: `exactlyOnceWriters=tasks`.

A task writes its rows in a transaction of its own, and leaves it open (`writing`). The driver commits the marker of the
batch, which names all of these transactions (`prepared`), and then ends them (`decided`). docs/adr/0022 lists
the failures.
"""
