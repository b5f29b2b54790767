"""Tickets: a producer with two sites, and readers at each who drop repeats."""
