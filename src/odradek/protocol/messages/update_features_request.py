"""UpdateFeaturesRequest, declared for every version; generated from Kafka's definition."""

from __future__ import annotations

from odradek.protocol.declare import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    """Within UpdateFeaturesRequest."""

    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, kind="request", key=57, versions="0-2", flexible="0+"):
    """Request of API 57, versions 0-2, flexible 0+; listeners: broker, controller."""

    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")
