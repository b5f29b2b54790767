"""`odradek plan`: computes the number and size of brokers, and their settings, from the load of a topic.

`figures` are what this project has measured, `sizing` what follows from them, `profiles` the settings.
"""
