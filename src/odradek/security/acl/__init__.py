"""Authorization: the index of ACLs, and the decision."""
