"""The exactly-once sinks into tables: Delta, Iceberg and PostgreSQL; each needs an extra of its own."""
