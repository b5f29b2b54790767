"""The log: segments, indexes, producer state, leader epochs, recovery, retention; one directory per partition."""
