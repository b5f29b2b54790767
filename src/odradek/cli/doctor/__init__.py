"""The checks of `odradek doctor`: a machine, a configuration file, a running cluster.

Facts are collected first (`machine`, `cluster_facts`); the checks (`machine`, `configuration`, `cluster_checks`) derive
findings from them without I/O.
"""
