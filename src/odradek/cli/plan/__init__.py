"""What `odradek plan` works out: how many brokers, how large, and their settings, from what a topic has to carry.

`figures` are what this project has measured, `sizing` what follows from them, `profiles` the settings.
"""
