"""What speaks to brokers: connections, the questions about a cluster, positions in it, and librdkafka's settings."""
