"""Operations on whole clusters, over Kafka's protocol alone, for the command line and for the console.

Facts are gathered (`cluster_facts`, `lagging`), what is wrong with them is decided without looking anywhere
(`cluster_checks`), and what a change would do is computed before it is made (`offset_reset`).
"""
