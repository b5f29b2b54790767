"""Fuzzers of everything that reads bytes from elsewhere: sockets, files, settings.

`engine.py` mutates and runs, `guided.py` runs under Atheris, `targets_*.py` say what must hold, and `corpus/<target>/`
keeps inputs: one small file each, written by us, among them every input that ever failed. `make fuzz MINUTES=5` runs
all targets in turns; the same targets run for some seconds each in `make test`, with a seed, so that a run can be
repeated.
"""
