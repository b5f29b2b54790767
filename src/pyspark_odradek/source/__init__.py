"""The source, batch and streaming: ranges of offsets are planned on the driver, and read by tasks."""
