"""Where progress goes; never where results go."""

from __future__ import annotations

from typing import Protocol

from gpubalance.record.node import Node
from gpubalance.record.run import Plan


class Display(Protocol):
    """Told what happens while it happens."""

    def plan(self, plan: Plan, node: Node) -> None:
        """What is about to run."""
        ...

    def say(self, text: str) -> None:
        """A line that stays."""
        ...

    def phase(self, name: str, attempt: int) -> None:
        """A phase begins."""
        ...

    def advance(self, blocks: int) -> None:
        """So many blocks of the current phase are done."""
        ...


class Silent:
    """Shows nothing."""

    def plan(self, plan: Plan, node: Node) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def phase(self, name: str, attempt: int) -> None:
        """Nothing."""

    def advance(self, blocks: int) -> None:
        """Nothing."""
