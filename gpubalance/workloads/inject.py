"""Faults played on purpose, so that everybody can see that the tool finds them.

A fault acts on one rank and in every kind of step alike (alone, fenced, overlapped), at the stage where its real
counterpart would. Extra work is real work on the device, in the step's stream; a delay of the host waits for the device
first, because a host that sleeps while the device has a queue to work off delays nothing. A replay of the step as
a CUDA graph holds the extra device work and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from gpubalance.record.job import Job
from gpubalance.workloads.extra_work import ExtraWork
from gpubalance.workloads.other_context import context_on
from gpubalance.workloads.rivals import busy_core, rival_on

MIB = 2**20
COPIED_MIB = 256
"""Copies larger than this are made in pieces of this size, so that pinned memory stays small."""

EXTRA_KINDS = ("compute", "backward", "transient")
"""Kinds that need extra work to be calibrated."""


class Faults:
    """The faults of one rank, asked by every step at each of its stages. None at all is a healthy rank."""

    def __init__(self, extra: ExtraWork, faults: Iterable[Mapping[str, Any]] = ()) -> None:
        self.extra, self._device, self._clock = extra, extra.device, extra.clock
        self._faults = {fault["kind"]: fault for fault in faults}
        self._steps = 0
        self._held: list[torch.Tensor] = []
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []

    @classmethod
    def of_rank(cls, faults: Iterable[Mapping[str, Any]], rank: int, extra: ExtraWork) -> Faults:
        """Those of the faults that this rank plays."""
        return cls(extra, [fault for fault in faults if fault["rank"] == rank])

    def _value(self, kind: str, name: str) -> float:
        return float(self._faults[kind][name]) if kind in self._faults else 0.0

    @property
    def data_factor(self) -> float:
        """Samples of this rank as a multiple of the planned ones."""
        return self._value("data", "factor") or 1.0

    @property
    def needs_extra(self) -> bool:
        """True when extra work must be calibrated before the faults are played."""
        return not self._faults.keys().isdisjoint(EXTRA_KINDS)

    @contextmanager
    def playing(self, job: Job, rank: int) -> Iterator[None]:
        """Start what acts beside the steps, and end all that these faults took, whatever happens."""
        with ExitStack() as stack:
            stack.callback(self.let_go)
            self._prepare_copies()
            if "context" in self._faults:
                wanted = self._faults["context"]["device"]
                stack.enter_context(context_on(next(s.ordinal or 0 for s in job.slots if s.device == wanted)))
            if "hog" in self._faults:
                stack.enter_context(busy_core(self._faults["hog"]["processes"], rank))
            if "rival" in self._faults:
                stack.enter_context(rival_on(self._device.index or 0, job.model["dtype"]))
            yield

    def _prepare_copies(self) -> None:
        whole = int(self._value("copies", "mib") * MIB)
        if not whole:
            return
        piece = min(whole, COPIED_MIB * MIB)
        source = torch.randint(1, 256, (piece,), dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        target = torch.empty(piece, dtype=torch.uint8, device=self._device)
        sizes = [piece] * (whole // piece) + [whole % piece] * (whole % piece > 0)
        self._copied = [(target[:size], source[:size]) for size in sizes]

    def hold_memory(self, capacity_bytes: int) -> None:
        """Take the wanted share of the device's memory and keep it. Raises torch.cuda.OutOfMemoryError."""
        wanted = int(self._value("memory", "percent") / 100 * capacity_bytes)
        if wanted:
            self._held.append(torch.empty(wanted, dtype=torch.uint8, device=self._device).fill_(1))

    def let_go(self) -> None:
        """Give back the memory that was taken."""
        self._held.clear()
        self._copied.clear()

    def before_input(self) -> None:
        """At the end of a step: with a slow loader the device has nothing left to do when the wait begins."""
        if "loader" in self._faults:
            self._clock.wait()

    def in_input(self) -> None:
        """While the next batch is fetched."""
        if "loader" in self._faults:
            time.sleep(self._value("loader", "ms") / 1000)

    def in_copy(self) -> None:
        """While the batch goes to the device."""
        for target, source in self._copied:
            target.copy_(source, non_blocking=True)

    def in_forward(self) -> None:
        """Before the forward pass."""
        self._steps += 1
        if "sleep" in self._faults:
            self._clock.wait()
            time.sleep(self._value("sleep", "ms") / 1000)
        self.captured_forward()
        every = int(self._value("transient", "every"))
        if every and self._steps % every == 0:
            self.extra.do(self.extra.units(self._value("transient", "percent")))

    def in_backward(self) -> None:
        """Before the backward pass, so that each of its buckets is sent later."""
        self.extra.do(self.extra.units(self._value("backward", "percent")))

    def captured_forward(self) -> None:
        """The part of `in_forward` that every step has and a CUDA graph can hold."""
        self.extra.do(self.extra.units(self._value("compute", "percent")))

    def described(self) -> dict[str, int]:
        """What extra work was found to be needed, for the log."""
        return {f"{kind}_units": self.extra.units(self._value(kind, "percent")) for kind in EXTRA_KINDS}
