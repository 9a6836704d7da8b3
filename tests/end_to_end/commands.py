"""Commands that start real ranks."""

from __future__ import annotations

import sys

from tests.command import RANKS_VARIABLE
from tests.support import COMMAND

SMALL = ("bench", "--device", "cpu", "--nproc", "2", "--batch", "64")
SHORT = {RANKS_VARIABLE: "tests.end_to_end.short_blocks"}
"""Ranks that take seconds less, for what does not depend on how long they measure."""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *COMMAND[1:]]
