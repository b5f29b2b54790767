"""Decodes values of records in JSON, Avro or Protobuf to columns of structs, and handles values that do not decode.

Each format is a module that a query imports if it uses it: `fastavro` and `protobuf` are extras.
"""
