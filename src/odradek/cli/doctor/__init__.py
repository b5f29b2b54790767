"""What `odradek doctor` looks at: a machine, a configuration file, a running cluster.

Facts are gathered first (`machine`, `cluster_facts`); what is wrong with them is decided without looking anywhere
(`machine`, `configuration`, `cluster_checks`), as findings.
"""
