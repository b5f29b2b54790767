"""The parts of `odradek perf`: scheduled load, histograms, tables and pictures.

The C client sends and reads, as it does in applications. A record has a time when it is due; latency counts from there,
so that a stall is seen by every record that waits for it, and not by the one that is under way alone.
"""
