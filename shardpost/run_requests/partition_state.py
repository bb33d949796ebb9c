"""One partition of run requests during a dispatch."""

import logging
from dataclasses import dataclass, field

from shardpost.decisions import decisions_topic
from shardpost.decisions.decision import SHARDPOST, Decision, Kind
from shardpost.kafka.coordinates import Coordinates
from shardpost.kafka.records import Outgoing
from shardpost.run_requests.model.active_commands import ActiveCommands
from shardpost.run_requests.model.dispatch_counts import DispatchCounts
from shardpost.run_requests.model.requests import RequestRules
from shardpost.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartitionState:
    """The commands in force in a partition, and what the dispatch has done so far."""

    settings: Settings
    partition: int
    rules: RequestRules
    commands: ActiveCommands
    counts: DispatchCounts = field(default_factory=DispatchCounts)

    def decision_on(
        self, request: Coordinates, about: bytes, kind: Kind, reason: str, value: bytes
    ) -> Outgoing:
        """Return the record of a decision on a request, with the request's value in a header."""
        why = f"{request}: {reason}"
        log.warning("%s: %s", kind, why)
        decision = Decision(about, kind, SHARDPOST, self.rules.now, why)
        headers = {"request-offset": str(request.offset).encode(), "request": value}
        return decisions_topic.written(self.settings, decision, headers)
