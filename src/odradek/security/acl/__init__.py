"""Who may do what: the index of access control entries, and the decision."""
