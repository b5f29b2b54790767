"""Suites that others wrote, and foreign clients, against our broker.

`make interop` runs all of it; the tests without the `slow` marker are its short form and part of `make test`.
With `INTEROP_AGAINST=kafka` everything runs against Apache Kafka instead, which shows what the bar is on this machine.
"""
