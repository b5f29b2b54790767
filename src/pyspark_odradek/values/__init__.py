"""Values of records as columns of structs: JSON, Avro, Protobuf, and what becomes of those that do not decode.

Each format is a module of its own, imported where a query asks for it: `fastavro` and `protobuf` are extras.
"""
