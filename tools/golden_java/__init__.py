"""Golden bytes for the protocol tests, written by Kafka's own Java classes."""
