"""The sink into topics, at-least-once and exactly-once: by the driver, or by its tasks (`task_writers`)."""
