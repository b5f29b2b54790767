"""The settings of TLS, of the whole node or of one listener."""

from __future__ import annotations

from odradek.settings.options import config, option


class TlsSettingError(ValueError):
    """Invalid keys or certificates; the text begins with the setting's name, and has what to do."""


@config
class TlsConfig:
    """Keys, trusted certificates, and the parameters of handshakes.

    A store is a PEM file, PKCS12 or JKS, as its type says; certificates and keys as PEM text need no file (KIP-651).
    """

    keystore_type: str = option(
        "ssl.keystore.type", default="JKS", doc="Format of ssl.keystore.location: PEM, PKCS12 or JKS."
    )
    keystore_location: str | None = option(
        "ssl.keystore.location", default=None, doc="File with the private key and its certificate chain."
    )
    keystore_password: str | None = option(
        "ssl.keystore.password", default=None, doc="Password of a PKCS12 or JKS file."
    )
    keystore_key: str | None = option(
        "ssl.keystore.key", default=None, doc="Private key as PEM text (PKCS#8), in place of a file."
    )
    keystore_certificate_chain: str | None = option(
        "ssl.keystore.certificate.chain",
        default=None,
        doc="Certificate of the key as PEM text, and those of its issuers behind it.",
    )
    key_password: str | None = option(
        "ssl.key.password", default=None, doc="Password of the private key, in PEM text, a PEM file or a JKS file."
    )
    truststore_type: str = option(
        "ssl.truststore.type", default="JKS", doc="Format of ssl.truststore.location: PEM, PKCS12 or JKS."
    )
    truststore_location: str | None = option(
        "ssl.truststore.location", default=None, doc="File with the certificates of trusted authorities."
    )
    truststore_password: str | None = option(
        "ssl.truststore.password", default=None, doc="Password of a PKCS12 or JKS file of trusted authorities."
    )
    truststore_certificates: str | None = option(
        "ssl.truststore.certificates",
        default=None,
        doc="Certificates of trusted authorities as PEM text, in place of a file.",
    )
    client_auth: str = option(
        "ssl.client.auth",
        default="none",
        doc="Whether clients show a certificate: none, requested (they may), required (they must).",
    )
    enabled_protocols: tuple[str, ...] = option(
        "ssl.enabled.protocols", default=("TLSv1.2", "TLSv1.3"), doc="Versions of TLS that are agreed to."
    )
    cipher_suites: tuple[str, ...] = option(
        "ssl.cipher.suites",
        default=(),
        doc="Cipher suites of TLS 1.2 that are agreed to, by their IANA or OpenSSL names; empty for OpenSSL's default."
        " A version of TLS of which the list names no suite is not agreed to; those of TLS 1.3 are OpenSSL's.",
    )
    endpoint_identification: str = option(
        "ssl.endpoint.identification.algorithm",
        default="https",
        doc="https compares a peer's certificate with the host that was connected to; empty does not.",
    )
    principal_mapping_rules: str = option(
        "ssl.principal.mapping.rules",
        default="DEFAULT",
        doc="How the name in a client's certificate becomes the name of its principal (KIP-371).",
    )
    allow_dn_changes: bool = option(
        "ssl.allow.dn.changes",
        default=False,
        doc="Whether AlterConfigs may give a listener a certificate of another distinguished name (KIP-978).",
    )
    allow_san_changes: bool = option(
        "ssl.allow.san.changes",
        default=False,
        doc="Whether AlterConfigs may give a listener a certificate that lacks hosts of the present one (KIP-978).",
    )
