"""The client: connections, requests to a cluster, offsets, and librdkafka's settings."""
