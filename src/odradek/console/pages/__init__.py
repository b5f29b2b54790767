"""The pages, without decisions: each module has one page, or a few related ones."""
