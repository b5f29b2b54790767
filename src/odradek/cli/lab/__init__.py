"""`odradek lab`: each of its `scenes` changes a cluster, and states the expected result."""
