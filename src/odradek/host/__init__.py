"""Runs several brokers on one machine, one for each core, from one configuration.

`plan` computes the brokers with their ports and disks; `layout` stores the plan on every disk; `broker_process` runs
one broker; `supervisor` runs all of them; `pages` serves their state over HTTP. See docs/host.md.
"""
