"""kafka-python over TLS and logins: produce, read in a group, print the count. The argument is JSON.

It is a program of its own because its import warns, which our tests do not allow.
"""

from __future__ import annotations

import json
import ssl
import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

COUNT = 20


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Gives the one token that it has."""

    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


def main(given: dict[str, str]) -> None:
    login, topic = given["login"], given["topic"]
    context = ssl.create_default_context(cafile=given["ca"])
    if login == "MUTUAL-TLS":
        context.load_cert_chain(given["certificate"])
    settings: dict[str, Any] = {
        "bootstrap_servers": given["servers"],
        "security_protocol": "SSL" if login.endswith("TLS") else "SASL_SSL",
        "ssl_context": context,
    }
    if login == "OAUTHBEARER":
        settings |= {"sasl_mechanism": login, "sasl_oauth_token_provider": Tokens(given["token"])}
    elif not login.endswith("TLS"):
        settings |= {
            "sasl_mechanism": login,
            "sasl_plain_username": given["user"],
            "sasl_plain_password": given["password"],
        }
    producer = KafkaProducer(**settings)
    for number in range(COUNT):
        producer.send(topic, str(number).encode()).get(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings
    )
    seen = {next(consumer).value for _ in range(COUNT)}
    consumer.close()
    print("ok", len(seen))


main(json.loads(sys.argv[1]))
