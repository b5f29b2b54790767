"""What `odradek lab` shows: `scenes`, each of which does something to a cluster, and says what is expected of it."""
