"""What a selftest knows while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpubalance.record.node import Node
from gpubalance.record.run import Plan, Skipped
from gpubalance.record.selftest import Played
from gpubalance.session.assemble import Gathered
from gpubalance.settings import CPU_MARGIN, GPU_MARGIN, Margin, SelftestSettings


@dataclass
class Story:
    """What is known so far; it survives failures and interruptions."""

    settings: SelftestSettings
    node: Node
    plan: Plan
    seed: int
    gathered: Gathered
    played: list[Played] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Attempt of the crew and place in it -> number of the pass."""

    @property
    def margin(self) -> Margin:
        """What was asked for, else that of the kind of device."""
        return self.settings.margin or (CPU_MARGIN if self.plan.backend == "gloo" else GPU_MARGIN)
