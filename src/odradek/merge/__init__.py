"""A merge topic: the records of topics of several origins in one topic, each once, with a header that names its origin.

Links with a prefix bring the topics of other clusters here; `merge` copies them and the own one into the merge topic in
Kafka transactions.
"""
