"""Authentication, authorization and limits of clients: TLS, SASL, ACLs and quotas.

Rules, credentials and authorization use no socket and no clock; `server.network` calls them.
"""
