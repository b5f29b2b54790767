"""Finalized feature levels: UpdateFeatures (KIP-584, KIP-778) and the levels of a new cluster."""

from __future__ import annotations

from typing import Any

from odradek.common.errors import ApiError, ErrorCode
from odradek.controller.configs import Configs
from odradek.controller.eligible import clear_eligible
from odradek.controller.state import ControllerState
from odradek.metadata.features import (
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    LevelRange,
    downgrade_loses_metadata,
    metadata_name,
    offered_features,
    unmet_need,
)
from odradek.protocol.messages.feature_level_record import FeatureLevelRecord
from odradek.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse
from odradek.statemachine.machine import Result

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Features:
    """Operations on feature levels."""

    def __init__(self, state: ControllerState, configs: Configs) -> None:
        self._state = state
        self._configs = configs

    def update(
        self, request: UpdateFeaturesRequest, version: int, *, kraft_version: int = 0
    ) -> Result[Any, UpdateFeaturesResponse]:
        """Finalize other levels. The updates of a request are made all or none.

        Args:
            version: of the request: up to 1 the answer names each feature. The first error is the whole answer.
            kraft_version: the quorum's, which has no metadata record: its update is checked here and made by the quorum
                (see `VoterChanges.upgrade`).
        """
        levels = {**self._state.features, KRAFT_VERSION: kraft_version}
        results = []
        records: list[Any] = []
        seen: set[str] = set()
        requested = {update.feature: update.max_version_level for update in request.feature_updates}
        try:
            for update in request.feature_updates:
                if update.feature in seen:
                    raise ApiError(ErrorCode.INVALID_REQUEST, f"{update.feature} is named twice")
                seen.add(update.feature)
                records.extend(self._update_one(update, version, {**levels, **requested}, kraft_version))
                if version <= 1:
                    results.append(UpdatableFeatureResult(feature=update.feature, error_message=None))
        except ApiError as error:
            return Result([], UpdateFeaturesResponse(error_code=error.code, error_message=error.message))
        answer = UpdateFeaturesResponse(error_message=None, results=results)
        return Result([] if request.validate_only else records, answer)

    def _update_one(
        self, update: FeatureUpdateKey, version: int, levels: dict[str, int], kraft_version: int
    ) -> list[Any]:
        name, level = update.feature, update.max_version_level
        kind = update.upgrade_type
        if version == 0:
            kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        current = kraft_version if name == KRAFT_VERSION else self._state.features.get(name, 0)
        _check_direction(name, current, level, kind)
        self._check_supported(name, level)
        if name == KRAFT_VERSION:
            self._check_controllers(name, level)
            return []
        if name == METADATA_VERSION:
            self._check_metadata_version(current, level, kind)
        need = unmet_need(name, level, levels)
        if need is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}: {need}."
            )
        return [] if level == current else self._change(name, current, level)

    def _change(self, name: str, current: int, level: int) -> list[Any]:
        """The records that set a feature's level, with the changes that this requires."""
        records: list[Any] = [FeatureLevelRecord(name=name, feature_level=level)]
        if name == ELR_VERSION and current == 0:
            records.extend(self._configs.safety_records())
        elif name == ELR_VERSION and level == 0:
            # They are no longer updated from now on, and outdated ones must never be elected.
            records[:0] = clear_eligible(self._state, tracked=False)
        return records

    def _check_supported(self, name: str, level: int) -> None:
        ours = offered_features(self._state.features).get(name)
        if ours is None or not (ours.contains(level) or (level == 0 and name != METADATA_VERSION)):
            known = "none" if ours is None else f"{ours.min_level}-{ours.max_level}"
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {level} for feature {name}. Local controller supports versions {known}.",
            )
        for broker in self._state.brokers.values():
            theirs = broker.features.get(name, LevelRange(0, 0))
            if not theirs.contains(level):
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Invalid update version {level} for feature {name}. Broker {broker.broker_id} supports versions "
                    f"{theirs.min_level}-{theirs.max_level}.",
                )

    def _check_controllers(self, name: str, level: int) -> None:
        for controller in self._state.controllers.values():
            theirs = controller.features.get(name, LevelRange(0, 0))
            if not theirs.contains(level):
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Invalid update version {level} for feature {name}. Controller {controller.controller_id} "
                    f"supports versions {theirs.min_level}-{theirs.max_level}.",
                )

    def _check_metadata_version(self, current: int, level: int, kind: int) -> None:
        if not downgrade_loses_metadata(current, level):
            return
        if kind == UNSAFE_DOWNGRADE:
            text = "Unsafe metadata downgrade is not supported in this version."
        else:
            text = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {metadata_name(level)}. {text}")


def _check_direction(name: str, current: int, level: int, kind: int) -> None:
    """Check that the kind of update allows this step. Raises ApiError: INVALID_UPDATE_VERSION."""
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, "The controller does not support the given upgrade type.")
    reason = ""
    if level < 0:
        reason = "A feature version cannot be less than 0."
    elif level < current and kind == UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > current and kind != UPGRADE:
        reason = "Can't upgrade with a downgrade type."
    if reason:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")
