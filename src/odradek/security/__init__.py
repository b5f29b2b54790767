"""Who may connect and what they may do: TLS, SASL, ACLs and quotas.

What decides (rules, credentials, authorization) knows no socket and no clock; `server.network` asks it.
"""
