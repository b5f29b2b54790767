"""Client quotas: the one that applies, and the throttle time of a client beyond it."""
