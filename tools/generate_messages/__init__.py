"""Writes `src/odradek/protocol/messages/` from the message definitions that Kafka's own jars carry."""
