"""A cluster without a listener in plain text, with users of every kind, for tests of a client's security.

    with SecuredCluster({"alice": "alice-secret"}) as cluster:
        producer = Producer(cluster.client("SCRAM-SHA-512", "alice"))

Each broker has three listeners, all of them with certificates of an authority that the cluster makes:

    SASL      TLS, and a login by PLAIN, SCRAM or a token of the cluster's own issuer
    TLS       TLS, and no login
    INTERNAL  mutual TLS: brokers among themselves, and clients with a certificate

Controllers speak mutual TLS as well.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

from odradek.security.tls.development import Authority, make_authority
from odradek.security.tls.stores import Identity
from odradek.server.startup.format import FormatOptions
from odradek.testing.cluster import AsyncCluster, Cluster, ClusterOptions
from odradek.testing.control_socket import HOST
from odradek.testing.issuer import TokenIssuer
from odradek.testing.layout import NodePlan, free_ports

Login = Literal["TLS", "MUTUAL-TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
LOGINS: tuple[Login, ...] = get_args(Login)
DEFAULT_USERS: Mapping[str, str] = {"alice": "alice-secret", "bob": "bob-secret"}
AUDIENCE = "kafka"
HOSTS = (HOST, "localhost")
_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule required"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule required"
_OAUTHBEARER = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
_LOGIN_HANDLER = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
_MECHANISMS = tuple(login for login in LOGINS if not login.endswith("TLS"))
_LISTENERS: Mapping[str, str] = {"TLS": "TLS", "MUTUAL-TLS": "INTERNAL"}


class SecuredCluster(Cluster):
    """`Cluster` with TLS, users and an issuer of tokens. `address` and `bootstrap_servers` are of the SASL listener.

    Attributes:
        users: name → password, or an OAuth client's secret; all of them can log in in each way.
    """

    def __init__(
        self, users: Mapping[str, str] | None = None, brokers: int = 1, **options: Unpack[ClusterOptions]
    ) -> None:
        """
        Args:
            users: name → password; `DEFAULT_USERS` without.
            options: as `Cluster` takes them.
        """
        super().__init__(brokers, **options)
        self.users = dict(DEFAULT_USERS if users is None else users)
        self._now = datetime.datetime.now(datetime.UTC)
        self._authority: Authority = make_authority("Odradek test authority", now=self._now)
        self._issuer: TokenIssuer | None = None
        self._ports: dict[tuple[str, int], int] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for clients with SASL."""
        return self.servers("SCRAM-SHA-512")

    @property
    def ca(self) -> Path:
        """The certificate of the authority that signed all others, a PEM file."""
        return self._file("ca")

    @property
    def issuer(self) -> TokenIssuer:
        """The issuer of the tokens that the brokers accept."""
        assert self._issuer is not None, "the cluster does not run"
        return self._issuer

    def address(self, node_id: int) -> str:
        """`host:port` of one broker for clients that log in by SASL."""
        return f"{HOST}:{self._ports['SASL', node_id]}"

    def servers(self, login: Login) -> str:
        """The bootstrap.servers of the listener for a kind of login."""
        wanted = _LISTENERS.get(login, "SASL")
        return ",".join(f"{HOST}:{port}" for (name, _), port in self._ports.items() if name == wanted)

    def certificate(self, name: str) -> Path:
        """A PEM file with a key and a certificate of `CN=name`; brokers know its holder as `User:name`."""
        path = self._file(name)
        if not path.exists():
            path.write_bytes(self.identity(name).to_pem())
        return path

    def identity(self, name: str) -> Identity:
        """A key with a new certificate of `CN=name`, for stores of other formats than PEM."""
        return self._authority.issue(name, HOSTS, now=self._now)

    def ssl_context(self, name: str | None = None) -> ssl.SSLContext:
        """The context for Python clients (aiokafka's `ssl_context`), with the certificate of `name` if given."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name is not None:
            context.load_cert_chain(self.certificate(name))
        return context

    def client(self, login: Login = "SCRAM-SHA-512", user: str | None = None) -> dict[str, Any]:
        """The settings of a librdkafka client (confluent-kafka and others), `bootstrap.servers` among them.

        Args:
            login: the mechanism.
            user: the user; by default the first of `users`.
        """
        name, password = self._user(user)
        given = {"bootstrap.servers": self.servers(login), "ssl.ca.location": str(self.ca), "security.protocol": "ssl"}
        if login == "MUTUAL-TLS":
            own = str(self.certificate(name))
            given |= {"ssl.certificate.location": own, "ssl.key.location": own}
        elif login == "OAUTHBEARER":
            given |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": name,
                "sasl.oauthbearer.client.secret": password,
                "sasl.oauthbearer.token.endpoint.url": self.issuer.token_url,
                "https.ca.location": str(self.ca),
            }
        elif login != "TLS":
            given |= {"sasl.username": name, "sasl.password": password}
        return given | ({"security.protocol": "sasl_ssl", "sasl.mechanism": login} if login in _MECHANISMS else {})

    def java_client(self, login: Login = "SCRAM-SHA-512", user: str | None = None) -> dict[str, str]:
        """`client` for clients of Java, for `--command-config` of `odradek`, and, behind `kafka.`, for Spark.

        For OAUTHBEARER a JVM needs `-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls` with the issuer's `token_url`.
        """
        name, password = self._user(user)
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        given = {"bootstrap.servers": self.servers(login), "security.protocol": "SSL", **trust}
        if login == "MUTUAL-TLS":
            given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate(name))}
        elif login == "OAUTHBEARER":
            options = " ".join(f'{key}="{value}"' for key, value in trust.items())
            given |= {
                "sasl.oauthbearer.token.endpoint.url": self.issuer.token_url,
                "sasl.login.callback.handler.class": _LOGIN_HANDLER,
                "sasl.jaas.config": f'{_OAUTHBEARER} clientId="{name}" clientSecret="{password}" {options};',
            }
        elif login != "TLS":
            module = _PLAIN if login == "PLAIN" else _SCRAM
            given |= {"sasl.jaas.config": f'{module} username="{name}" password="{password}";'}
        return given | ({"security.protocol": "SASL_SSL", "sasl.mechanism": login} if login in _MECHANISMS else {})

    def stop(self) -> None:
        """Stop all nodes and the issuer. Raises StorageError."""
        try:
            super().stop()
        finally:
            issuer, self._issuer = self._issuer, None
            if issuer is not None:
                issuer.stop()

    # ---- settings of the nodes

    def _plan(self, directory: Path) -> list[NodePlan]:
        directory.mkdir(parents=True, exist_ok=True)
        self.ca.write_text(self._authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate("node"))
        self._issuer = TokenIssuer(self.users, context, audience=AUDIENCE).start()
        ports = free_ports()
        plans = super()._plan(directory)
        for plan in plans:
            if plan.is_broker:
                added = {name: next(ports) for name in ("SASL", "TLS")}
                self._ports |= {(name, plan.node_id): port for name, port in (added | {"INTERNAL": plan.port}).items()}
        return [self._secured(plan) for plan in plans]

    def _format_options(self) -> FormatOptions:
        kinds = [login for login in LOGINS if login.startswith("SCRAM")]
        users = [f"{kind}=[name={name},password={word}]" for name, word in self.users.items() for kind in kinds]
        return FormatOptions(scram_users=users)

    def _secured(self, plan: NodePlan) -> NodePlan:
        own = [f"{name}://{HOST}:{self._ports[name, plan.node_id]}" for name in ("SASL", "TLS") if plan.is_broker]
        listeners = ",".join([*own, plan.properties["listeners"].replace("PLAINTEXT://", "INTERNAL://")])
        trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.ca}"'
        plain = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        secured = {
            "listener.security.protocol.map": "SASL:SASL_SSL,TLS:SSL,INTERNAL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate("node")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "listener.name.sasl.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            "listener.name.sasl.plain.sasl.jaas.config": f"{_PLAIN}{plain};",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{_SCRAM};",
            "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{_SCRAM};",
            "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{_OAUTHBEARER} {trust};",
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.keys_url,
            "sasl.oauthbearer.expected.issuer": self.issuer.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        return replace(plan, properties={**secured, **plan.properties, "listeners": listeners})

    def _file(self, name: str) -> Path:
        assert self._directory is not None, "the cluster was not started"
        return self._directory / f"{name}.pem"

    def _user(self, name: str | None) -> tuple[str, str]:
        wanted = next(iter(self.users)) if name is None else name
        return wanted, self.users.get(wanted, "")


class AsyncSecuredCluster(AsyncCluster):
    """`SecuredCluster` for coroutines. Use it with `async with`.

    Attributes:
        cluster: the `SecuredCluster` itself, with further methods for clients.
    """

    cluster: SecuredCluster

    def __init__(
        self, users: Mapping[str, str] | None = None, brokers: int = 1, **options: Unpack[ClusterOptions]
    ) -> None:
        """See `SecuredCluster`."""
        self.cluster = SecuredCluster(users, brokers, **options)

    @property
    def issuer(self) -> TokenIssuer:
        """See `SecuredCluster.issuer`."""
        return self.cluster.issuer

    def servers(self, login: Login) -> str:
        """See `SecuredCluster.servers`."""
        return self.cluster.servers(login)

    def ssl_context(self, name: str | None = None) -> ssl.SSLContext:
        """See `SecuredCluster.ssl_context`."""
        return self.cluster.ssl_context(name)

    def client(self, login: Login = "SCRAM-SHA-512", user: str | None = None) -> dict[str, Any]:
        """See `SecuredCluster.client`."""
        return self.cluster.client(login, user)

    def java_client(self, login: Login = "SCRAM-SHA-512", user: str | None = None) -> dict[str, str]:
        """See `SecuredCluster.java_client`."""
        return self.cluster.java_client(login, user)
