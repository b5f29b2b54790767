"""How much a client may do: which quota is meant, and how long it waits that has done more."""
