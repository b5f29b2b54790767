"""A controller over real files in one process, which can be stopped, or dropped as by kill -9."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from odradek.common.real_io import RealClock, RealDisk
from odradek.controller.config import ControllerConfig
from odradek.controller.service import ControllerService
from odradek.controller.tokens import NO_TOKENS, DelegationTokenConfig
from odradek.metadata.publisher import MetadataPublisher
from odradek.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from odradek.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.raft.config import RaftConfig
from odradek.raft.driver import RaftDriver
from odradek.raft.metadata_log import DIRECTORY
from odradek.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.models.controller_harness import CLUSTER, Harness, Schema


class QuorumNode:
    """One controller."""

    def __init__(
        self,
        root: Path,
        *,
        bootstrap: Any = (),
        cluster_id: str = CLUSTER,
        me: ReplicaKey = ReplicaKey(1),  # noqa: B008 - immutable
        disk: RealDisk | None = None,
        config: ControllerConfig = ControllerConfig(),  # noqa: B008 - immutable
        tokens: DelegationTokenConfig = NO_TOKENS,
        **raft: Any,
    ) -> None:
        self.directory = root / DIRECTORY
        self.disk = disk or RealDisk()
        self.publisher = MetadataPublisher(cluster_id)
        self.failures: list[BaseException] = []
        self.service = ControllerService(
            RealClock(),
            random.Random(7),
            config,
            Schema(),
            cluster_id=cluster_id,
            bootstrap=bootstrap,
            token_config=tokens,
            on_failed=self.failures.append,
        )
        self.driver = RaftDriver(
            self.disk,
            RealClock(),
            random.Random(8),
            self.directory,
            me=me,
            voters=VoterSet([Voter(ReplicaKey(1), {"CONTROLLER": ("127.0.0.1", 9093)})]),
            cluster_id=cluster_id,
            config=replace(RaftConfig(), **raft),
            publisher=self.publisher,
            on_elected=self.service.elected,
            on_failed=self.failures.append,
        )
        self.service.attach(self.driver)

    async def start(self) -> QuorumNode:
        await self.driver.start()
        async with asyncio.timeout(60):
            await self.service.wait_active()
        return self

    async def stop(self) -> None:
        await self.service.stop()
        await self.driver.stop()
        self.disk.close()

    async def drop(self) -> None:
        """End as kill -9 ends a process: nothing is flushed, nothing is written any more."""
        await self.service.stop()
        for task in self.driver._tasks:
            task.cancel()
        await asyncio.gather(*self.driver._tasks, return_exceptions=True)
        self.driver.log.close()
        self.disk.close()

    async def add_broker(self, broker_id: int) -> int:
        """Register and unfence a broker; returns its epoch."""
        answer = await self.service.broker_registration(Harness().registration(broker_id))
        await self.beat(broker_id, answer.broker_epoch)
        return answer.broker_epoch

    async def beat(self, broker_id: int, broker_epoch: int) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, current_metadata_offset=self.publisher.image.offset
        )
        return await self.service.broker_heartbeat(request)

    async def set_config(self, resource_type: int, name: str, key: str, value: str) -> int:
        entry = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[entry])
        answer = await self.service.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]))
        return answer.responses[0].error_code
