"""GPM: the counters that tell work from waiting, on parts that have them (Hopper and later).

A rank that waits inside NCCL reads 100 % NVML utilization but 0.8 % SM_UTIL (measured on H200). A metric is the
mean between two samples; taking one costs 0.9 ms.
"""

from __future__ import annotations

import math
from typing import Any

from gpubalance.node.nvml import Nvml

METRICS = {
    "gpm_sm_percent": "NVML_GPM_METRIC_SM_UTIL",
    "gpm_tensor_percent": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "gpm_dram_percent": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "gpm_nvlink_rx_mib_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
    "gpm_nvlink_tx_mib_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
}


class Gpm:
    """GPM of one device; `missing` says why when the part or the driver has none."""

    def __init__(self, nvml: Nvml, device: int) -> None:
        self._nvml = nvml
        self._device = device
        self._samples: list[Any] = []
        self.missing = self._prepare()

    def _prepare(self) -> str | None:
        support = self._nvml.ask("GpmQueryDeviceSupport", self._device)
        if support.reason is not None:
            return support.reason
        if not support.value.isSupportedDevice:
            return "NOT_SUPPORTED"
        samples = [self._nvml.ask("GpmSampleAlloc") for _ in range(2)]
        self._samples = [sample.value for sample in samples]
        first = self._nvml.ask("GpmSampleGet", self._device, self._samples[0])
        return samples[0].reason or first.reason

    def read(self) -> dict[str, float | None]:
        """Means since the last read, by key; null where the metric is refused."""
        if self.missing is not None:
            return dict.fromkeys(METRICS)
        before, now = self._samples
        if self._nvml.ask("GpmSampleGet", self._device, now).reason is not None:
            return dict.fromkeys(METRICS)
        self._samples = [now, before]
        return self._between(before, now)

    def _between(self, before: Any, now: Any) -> dict[str, float | None]:
        request = self._nvml.constant("c_nvmlGpmMetricsGet_t")()
        request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        request.sample1, request.sample2 = before, now
        request.numMetrics = len(METRICS)
        for index, name in enumerate(METRICS.values()):
            request.metrics[index].metricId = self._nvml.constant(name)
        answer = self._nvml.ask("GpmMetricsGet", None, request)
        if answer.reason is not None:
            return dict.fromkeys(METRICS)
        return {key: _value(request.metrics[index]) for index, key in enumerate(METRICS)}


def _value(metric: Any) -> float | None:
    """A metric's value; refusals and what is not a finite number (a counter that was reset) are null."""
    value = float(metric.value)
    return round(value, 2) if metric.nvmlReturn == 0 and math.isfinite(value) else None
