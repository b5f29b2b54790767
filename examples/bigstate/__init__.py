"""A query with much state: killed and started again, or its standby takes over. docs/examples/bigstate.md."""
