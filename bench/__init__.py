"""The benchmark: Odradek beside Apache Kafka on the same machine, under one load generator. `make bench` runs it.

The other modules of this folder measure single parts and are run by themselves (`python -m bench.codec_bench`, …).
"""
