"""Connects links to their sources, with the settings of the link, whose secrets are decrypted here only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.client.cluster import Cluster, parse_bootstrap
from odradek.client.sasl import credentials_from
from odradek.common.errors import OdradekError
from odradek.common.ports import read_file
from odradek.link.service import REQUEST_TIMEOUT_MS
from odradek.settings.link_settings import LINK_SECRETS, connection_settings
from odradek.settings.links import setting_key

if TYPE_CHECKING:
    import ssl

    from odradek.security.sealing import SecretKeys
    from odradek.server.parts.ports import Ports
    from odradek.settings.links import Link


class SourceSettingError(OdradekError):
    """Settings of TLS that cannot be used here."""


class Sources:
    """Connects to the sources of links."""

    def __init__(self, ports: Ports, keys: SecretKeys) -> None:
        self._ports = ports
        self._keys = keys

    def __call__(self, link: Link) -> Cluster:
        """
        Raises:
            SealError: the link has secrets that cannot be opened here.
            SourceSettingError, SaslSettingError: settings by which nothing can be reached.
        """
        settings = self._decrypted(link)
        return Cluster(
            self._ports.network,
            self._ports.clock,
            parse_bootstrap(link.bootstrap_servers),
            client_id=f"odradek-link-{link.name}",
            timeout_ms=REQUEST_TIMEOUT_MS,
            tls=self._tls(settings),
            sasl=credentials_from(settings, self._ports.random),
        )

    def _decrypted(self, link: Link) -> dict[str, str]:
        return {
            name: self._keys.open("", setting_key(link.name, name), text) if name in LINK_SECRETS else text
            for name, text in connection_settings(link.settings).items()
        }

    # Imported only with TLS: its libraries take a third of a node's start.
    def _tls(self, settings: dict[str, str]) -> ssl.SSLContext | None:
        if not settings.get("security.protocol", "").upper().endswith("SSL"):
            return None
        from odradek.security.client.settings import tls_config
        from odradek.security.tls.config import TlsSettingError
        from odradek.security.tls.contexts import client_context

        try:
            return client_context(tls_config(settings), lambda path: read_file(self._ports.disk, path)).context
        except TlsSettingError as error:
            raise SourceSettingError(str(error)) from None
