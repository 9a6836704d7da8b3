"""What the parent knows of one rank, from the lines of its log."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gpubalance.record.rank_log import Event


@dataclass
class RankState:
    """What is known of one rank."""

    rank: int
    events: list[Event] = field(default_factory=list)
    phase: str = "start"
    phases_seen: int = 0
    doing: str | None = None
    """What it is about to do, where it says so; an action that never ends is named by it."""
    fence: int = 0
    collectives: dict[int, str] = field(default_factory=dict)
    """What each fence of the current phase was."""
    last_progress_s: float = field(default_factory=time.monotonic)
    said_bye: bool = False
    error: Event | None = None
    exit_code: int | None = None

    @property
    def progress(self) -> tuple[int, int]:
        """Grows with everything the rank does; whoever has least is whom the others wait for."""
        return self.phases_seen, self.fence

    def take(self, event: Event) -> None:
        """Learn from one line of the log."""
        self.last_progress_s = time.monotonic()
        name = event["event"]
        if name == "fence":
            self.fence = event["fence"]
            self.collectives[self.fence] = event.get("what", "collective")
            return
        self.events.append(event)
        if name == "doing":
            self.doing = str(event["what"])
        elif name in ("phase_begin", "phase_end"):
            self.doing = None
            self.phases_seen += 1
            self.fence = 0
            self.collectives.clear()
            self.phase = event["phase"] if name == "phase_begin" else f"after {event['phase']}"
        elif name == "bye":
            self.said_bye = True
        elif name == "error":
            self.error = event
        elif name == "death":
            self.exit_code = event["exit_code"]
