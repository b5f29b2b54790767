"""Three edge sites and one centre, by links with a prefix; one site is cut off for longer than it keeps records."""
