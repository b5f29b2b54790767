"""Several brokers on one machine, one for each core: planned from one configuration, started, watched, rolled, stopped.

`plan` decides which brokers there are, on which ports and disks; `layout` remembers it on every disk; `broker_process`
runs one of them; `supervisor` runs them all; `pages` answers what is asked of them. See docs/host.md.
"""
