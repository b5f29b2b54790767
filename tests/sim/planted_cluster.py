"""Bugs to plant in what several nodes do: the quorum, replication, and the controller's decisions about leaders."""

from __future__ import annotations

from tests.sim.planted import Bug

MANY_NODES = (
    # The quorum.
    Bug(
        "two votes in one epoch",
        "raft.node:RaftNode._vote_requested",
        "free = self.state.voted is None or self.state.voted == asked.candidate",
        "free = True",
        "a controller votes for every candidate, and two may lead",
    ),
    Bug(
        "votes are not stored",
        "raft.storage:QuorumStorage.store_state",
        "store_state(\n        self._disk,",
        "(lambda *args, **more: None)(self._disk,",
        "a controller that starts again has forgotten its vote and its epoch",
    ),
    Bug(
        "votes for a shorter log",
        "raft.node:RaftNode._vote_requested",
        "and asked.log_end >= self._log_end()",
        "and True",
        "a controller leads that does not have all that was committed",
    ),
    Bug(
        "metadata committed by its leader alone",
        "raft.node:RaftNode._advance",
        "majority_end = ends[self.voters.majority - 1]",
        "majority_end = ends[0]",
        "what one controller has counts as committed",
    ),
    Bug(
        "metadata acknowledged before it is durable",
        "raft.follower:Follower._apply",
        "raise\n        await self._host.durable()",
        "raise",
        "a controller counts for the majority with records that are not on its disk",
    ),
    Bug(
        "metadata appended behind another history",
        "raft.incoming:IncomingRequests.fetch",
        "obstacle = self._storage.check_fetch(asked.fetch_offset, asked.last_fetched_epoch)",
        "inside = log.log_start_offset <= asked.fetch_offset <= log.log_end_offset\n"
        "obstacle = None if inside else self._storage.check_fetch(asked.fetch_offset, asked.last_fetched_epoch)",
        "a controller keeps records of an epoch that its leader never had",
    ),
    Bug(
        "what counted as synced stays after a cut",
        "raft.metadata_log:MetadataLog.truncate_to",
        "self._lower_synced(offset)",
        "pass",
        "a controller that cut its log as a new leader asked does not start again",
    ),
    Bug(
        "a leader without a majority stays",
        "raft.node:RaftNode._majority_fetched_ms",
        "return heard[self.voters.majority - 1] if len(heard) >= self.voters.majority else now_ms",
        "return now_ms",
        "a controller that is cut off goes on as the active one",
    ),
    # Full disks.
    Bug(
        "a broker without space keeps what it leads",
        "controller.partitions:Partitions.handle_directories_full",
        "return self._without(broker_id, touched)",
        "return []",
        "what a broker with a full disk leads cannot be written until there is space",
    ),
    # Replication.
    Bug(
        "watermark of the leader alone",
        "replica.isr:high_watermark",
        "for replica_id in maximal_isr:",
        "for replica_id in ():",
        "acks=all is answered before a follower has the record",
    ),
    Bug(
        "watermark below min.insync.replicas",
        "replica.isr:high_watermark",
        "if len(isr) < min_in_sync_replicas:",
        "if False:",
        "with too few in sync records count as committed, and who left before may be elected",
    ),
    Bug(
        "shrink counts before it is decided",
        "replica.in_sync:InSync.maximal_isr",
        "if self.pending is None:",
        "if self.pending is not None:\n    return self.pending.isr\nif True:",
        "a leader that is cut off goes on without the followers that it cannot remove",
    ),
    Bug(
        "anybody joins the in-sync set",
        "replica.isr:is_caught_up_to_leader",
        "return follower.log_end_offset >= max(high_watermark, leader_epoch_start)",
        "return True",
        "a follower that lacks committed records may be elected",
    ),
    Bug(
        "divergence is not looked for",
        "replica.partition:Partition.read",
        "read.diverging = self.diverges(fetch_offset, last_fetched_epoch)",
        "read.diverging = None",
        "a follower keeps an old leader's records below those of the new one",
    ),
    Bug(
        "cut to the watermark",
        "replica.leadership:apply_image",
        "if led and (not partition.is_leader or began):",
        "log = partition.log\n"
        "if not began and log.log_end_offset > log.high_watermark and image.leader_epoch != old_epoch:\n"
        "    from odradek.log.truncation import truncate_to\n"
        "    truncate_to(log, log.high_watermark)\n"
        "if led and (not partition.is_leader or began):",
        "a follower drops what it has acknowledged and does not know to be committed (KIP-101)",
    ),
    Bug(
        "a response of an earlier leader epoch is appended",
        "replica.fetcher:Fetcher._is_current",
        "and fetch_state.requested_offset == partition.log.log_end_offset",
        "and True",
        "a late response is appended behind later records",
    ),
    Bug(
        "fetches of an old epoch are counted",
        "replica.partition:Partition.check_epoch",
        "if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:",
        "if False:",
        "a follower that does not know the new leader epoch moves its watermark",
    ),
    Bug(
        "a follower is asked for what is not durable",
        "replica.partition:Partition.flush_is_due",
        "return self._flush_messages < NEVER and self.log.unflushed_count >= self._flush_messages",
        "return (\n"
        "    self.is_leader\n"
        "    and self._flush_messages < NEVER\n"
        "    and self.log.unflushed_count >= self._flush_messages\n"
        ")",
        "a follower acknowledges before its fsync",
    ),
    # The controller.
    Bug(
        "anybody is elected",
        "controller.election:_elect",
        "for group in (plan.isr, plan.elr):",
        "for group in (plan.isr, plan.elr, plan.replicas):",
        "a replica leads that was not in sync",
    ),
    Bug(
        "in-sync sets are taken from old leaders",
        "controller.partitions:Partitions._check_alter",
        "if data.leader_epoch < partition.leader_epoch:",
        "if False:",
        "a leader that was replaced says who is in sync",
    ),
    Bug(
        "in-sync sets overtake each other",
        "controller.partitions:Partitions._check_alter",
        "if data.partition_epoch < partition.partition_epoch:",
        "if False:",
        "a change that was decided on older facts is carried out",
    ),
    Bug(
        "fenced brokers join in-sync sets",
        "controller.partitions:Partitions._check_eligible",
        "if broker is None or not broker.active:",
        "if broker is None:",
        "a broker that is dead counts as in sync",
    ),
    Bug(
        "eligible replicas are those that left in good time",
        "controller.election:_populate_target_elr",
        "if not rules.elr_enabled or plan.unclean or _enough(plan, rules):",
        "if not rules.elr_enabled or plan.unclean:",
        "a replica that fell out while there were enough others may be elected",
    ),
    Bug(
        "a leader's epoch does not rise",
        "metadata.model:changed_partition",
        "leader, leader_epoch = record.leader, leader_epoch + 1",
        "leader, leader_epoch = record.leader, leader_epoch + 0",
        "one leader epoch cannot be distinguished from the next",
    ),
)

# Need somebody who moves replicas or deletes records and topics, or brokers that come later or leave.
MOVING = (
    Bug(
        "a move ends before its replicas are in sync",
        "controller.election:_complete_reassignment",
        "if staying and set(plan.adding) <= set(staying):",
        "if plan.adding:\n    plan.isr = plan.isr + tuple(r for r in plan.adding if r not in plan.isr)\n"
        "    staying = tuple(replica for replica in plan.isr if replica not in plan.removing)\n"
        "if staying:",
        "replicas that have nothing count as in sync",
    ),
    Bug(
        "a new broker begins behind the snapshot",
        "raft.storage:QuorumStorage.install",
        "self._load_snapshot(snapshot_id, snapshot)",
        "self.published_offset = snapshot_id.end_offset",
        "a broker that is added knows only what happens from then on",
    ),
    Bug(
        "all committed records are deleted",
        "log.retention:delete_records",
        "offset = watermark if before_offset == -1 else before_offset",
        "offset = watermark",
        "a request for a few takes what is behind them, too",
    ),
    Bug(
        "a recreated topic takes the old log",
        "log.manager:LogManager.create",
        "if self.topic_ids[topic, partition_id] in (topic_id, None):",
        "if True:",
        "records of a deleted topic are in the next one of its name",
    ),
    Bug(
        "a broker that left for good is not forgotten",
        "controller.brokers:Brokers.unregister",
        "records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch))",
        "pass",
        "clients are sent to a broker that does not exist",
    ),
    Bug(
        "a disk is blamed for a log that was deleted under a flush",
        "log.flush_state:FlushState.begin",
        "return partition_dir.work(job, by_name=bool(paths or directories or epochs is not None))",
        "def work() -> None:\n"
        "    try:\n"
        "        make_durable(partition_dir.files.disk, held, paths, directories)\n"
        "    except OSError as error:\n"
        "        raise partition_dir.failed(error) from error\n"
        "return work",
        "deleting a topic stops the node, and all nodes of the topic",
    ),
)
