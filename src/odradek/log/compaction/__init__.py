"""The cleaner: of each key the last record stays.

- `keys` walks records without decoding them; `batches` decides what stays of a batch; `transactions` knows whose go
- `cleaning` runs over the files of one log; `output` writes the new segments; both run in a worker, off the loop
- `plan` says how dirty a log is and what a cleaning covers; `swap` puts new segments in the place of old ones
- `cleaner` chooses the dirtiest log, asks the worker, swaps, and notes how far it came
"""
