"""The present settings of a node: those of its file, overridden by dynamic ones."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.common.log_lines import get_logger
from odradek.metadata.image import MetadataImage
from odradek.metadata.model import ResourceType
from odradek.security.sealing import SealError, SecretKeys, is_sealed
from odradek.settings.broker import BrokerSettings
from odradek.settings.resources import BrokerLayers, with_dynamic
from odradek.settings.table import is_secret

_log = get_logger("server.settings")


def dynamic_layers(image: MetadataImage, broker_id: int) -> BrokerLayers:
    """The stored settings of one broker and of the whole cluster; secrets are encrypted."""
    return BrokerLayers(
        image.config(ResourceType.BROKER, str(broker_id)),
        image.config(ResourceType.BROKER, ""),
    )


class DynamicSettings:
    """The settings of this node."""

    def __init__(self, settings: BrokerSettings, keys: SecretKeys) -> None:
        """`settings` are those of the file."""
        self.keys = keys
        self._settings = settings
        self._name = str(settings.node_id)
        self._secrets: dict[str, str] = {}  # in force now
        self._last_report: dict[str, str] = {}

    def current(self, image: MetadataImage) -> BrokerSettings:
        """The settings of this image. If a secret cannot be decrypted, the previous one stays in force, which is
        logged."""
        layers = dynamic_layers(image, self._settings.node_id)
        opened, unopened = self._decrypted(layers.broker)
        self._report(unopened, [key for key, text in layers.broker.items() if is_secret(key) and not is_sealed(text)])
        for key in unopened:
            if key in self._secrets:
                opened[key] = self._secrets[key]
        self._secrets = {key: text for key, text in opened.items() if is_secret(key)}
        return with_dynamic(self._settings, BrokerLayers(opened, layers.cluster))

    def after(self, image: MetadataImage, changed: Mapping[str, str | None]) -> BrokerSettings:
        """The settings after a change of this broker's settings; None deletes one."""
        layers = dynamic_layers(image, self._settings.node_id)
        opened, unopened = self._decrypted(layers.broker)
        kept = {key: self._secrets[key] for key in unopened if key in self._secrets}
        wanted: dict[str, str | None] = {**kept, **opened, **changed}
        broker = {key: text for key, text in wanted.items() if text is not None}
        return with_dynamic(self._settings, BrokerLayers(broker, layers.cluster))

    def _decrypted(self, stored: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Settings in plain text, and why others cannot be opened."""
        opened: dict[str, str] = {}
        unopened: dict[str, str] = {}
        for key, text in stored.items():
            try:
                opened[key] = self.keys.open(self._name, key, text) if is_secret(key) else text
            except SealError as error:
                unopened[key] = str(error)
        return opened, unopened

    def _report(self, unopened: dict[str, str], plain: list[str]) -> None:
        """Log one line for all, if it has changed."""
        found = {**unopened, **dict.fromkeys(plain, "")}
        if found != self._last_report and unopened:
            _log.error(
                "secrets of dynamic settings cannot be decrypted: the present values remain",
                settings=",".join(unopened),
                reason="; ".join(dict.fromkeys(unopened.values())),
            )
        if found != self._last_report and plain:
            _log.warning(
                "secrets of dynamic settings are stored in plain text: set them again to encrypt them",
                settings=",".join(plain),
            )
        self._last_report = found
