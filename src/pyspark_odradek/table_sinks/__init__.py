"""The exactly-once sinks into tables: Delta, Iceberg and PostgreSQL; each needs its own extra of the package."""
