"""Access logs as they happen: a lake, sessions, error rates, an alert. The page: docs/examples/activity.md."""
