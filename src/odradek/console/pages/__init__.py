"""What a browser shows, and nothing that decides: each module has one page, or a few that belong together."""
