"""Clients whose tokens are given for assertions that they sign (KIP-1139)."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from odradek.testing import SecuredCluster


def signing(cluster: SecuredCluster, name: str, folder: Path) -> dict[str, str]:
    """The settings of Kafka's clients for one of this name, whose key the issuer knows from now on."""
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    cluster.issuer.trust(name, public)
    file, options = folder / "key", cluster.java_client("OAUTHBEARER")
    # The key is plain base64, as Kafka's own clients read it.
    file.write_bytes(base64.b64encode(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())))
    options["sasl.jaas.config"] = re.sub(r'client(Id|Secret)="[^"]*" ', "", options["sasl.jaas.config"])
    own = {"private.key.file": str(file), "claim.iss": name, "claim.sub": name, "claim.aud": cluster.issuer.token_url}
    retriever = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"
    return (
        options
        | {f"sasl.oauthbearer.assertion.{name}": text for name, text in own.items()}
        | {"sasl.oauthbearer.jwt.retriever.class": retriever}
    )
