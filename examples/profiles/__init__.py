"""Profiles that are edited at two sites: links in both directions, and a merge topic at each site."""
