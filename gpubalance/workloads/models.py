"""The models that ranks train: plain, seeded, and equal on every rank by construction.

Operands are random, never zeros: a GPU that multiplies zeros draws far less power and does not throttle.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

SEQUENCE = 512
"""Tokens of one sample of the transformer."""


class Mlp(nn.Module):
    """Square linear layers with ReLU between them."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width) to (batch, width)."""
        out: torch.Tensor = self.layers(x)
        return out


class Transformer(nn.Module):
    """A pre-norm encoder without dropout, heads of 64."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) to the same shape."""
        out: torch.Tensor = self.encoder(x)
        return out


class WithLoss(nn.Module):
    """A model and its loss in one forward, so that DataParallel and DDP run exactly the same work.

    Autocast is entered here because it does not reach the threads that DataParallel starts.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of squares a row, mean over rows, as a vector of one element so that DataParallel can gather it.

        Not the mean over all elements: its gradients would underflow to zero in float16, and a GPU that multiplies
        zeros is not the GPU that trains.
        """
        with torch.autocast(x.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32, cache_enabled=False):
            out = self.model(x)
        loss: torch.Tensor = out.float().square().sum(-1).mean().reshape(1)
        return loss


def build_model(spec: dict[str, Any], device: torch.device, seed: int) -> WithLoss:
    """The model of the job, with weights that depend on the seed and the kind of device only."""
    torch.manual_seed(seed)
    kind = {"mlp": Mlp, "transformer": Transformer}[spec["kind"]]
    with device:  # drawn where it is needed: 200 million numbers take seconds on a CPU and milliseconds on a GPU
        model = kind(spec["width"], spec["layers"])
    return WithLoss(model, getattr(torch, spec["dtype"]))


def build_batch(spec: dict[str, Any], size: int, device: torch.device, seed: int) -> torch.Tensor:
    """A random batch of `size` samples that depends on the seed and the kind of device only."""
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    shape = (size, spec["width"]) if spec["kind"] == "mlp" else (size, SEQUENCE, spec["width"])
    batch: torch.Tensor = torch.randn(shape, generator=generator, device=device)
    return batch
