"""Plain stochastic gradient descent, all parameters in one call.

The same kernels as torch.optim.SGD(foreach=True) without momentum, which a test compares bit for bit. Not that class
itself, because making one imports torch's compiler, 2 to 6 seconds that a health check does not have.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Sgd:
    """Steps parameters against their gradients; gradients that do not exist yet are left alone."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float) -> None:
        self._parameters = list(parameters)
        self._learning_rate = learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """P -= learning rate x gradient."""
        pairs = [(p, p.grad) for p in self._parameters if p.grad is not None]
        torch._foreach_add_([p for p, _ in pairs], [g for _, g in pairs], alpha=-self._learning_rate)

    @torch.no_grad()
    def zero_gradients(self) -> None:
        """Fill gradients with zeros in place, so that whatever shares their memory keeps sharing it."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if gradients:
            torch._foreach_zero_(gradients)
