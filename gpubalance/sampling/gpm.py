"""GPM: the counters that tell work from waiting, on parts that have them (Hopper and later).

A rank that waits inside NCCL reads 100 % NVML utilization but 0.8 % SM_UTIL (measured on H200). A metric is the
mean between two samples; taking one costs 0.9 ms.
"""

from __future__ import annotations

import math
from typing import Any

from gpubalance.node.nvml import Answer, Nvml

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
        return samples[0].reason or samples[1].reason or first.reason

    def read(self) -> tuple[dict[str, float | None], dict[str, str]]:
        """Means since the last read, by key, and for each null its reason."""
        if self.missing is not None:
            return _nothing(self.missing)
        before, now = self._samples
        taken = self._nvml.ask("GpmSampleGet", self._device, now)
        if taken.reason is not None:
            return _nothing(taken.reason)
        self._samples = [now, before]
        return self._between(before, now)

    def _between(self, before: Any, now: Any) -> tuple[dict[str, float | None], dict[str, str]]:
        request = self._nvml.constant("c_nvmlGpmMetricsGet_t")()
        request.version = self._nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        request.sample1, request.sample2 = before, now
        request.numMetrics = len(METRICS)
        for index, name in enumerate(METRICS.values()):
            request.metrics[index].metricId = self._nvml.constant(name)
        answer = self._nvml.ask("GpmMetricsGet", None, request)
        if answer.reason is not None:
            return _nothing(answer.reason)
        answers = {key: self._metric(request.metrics[index]) for index, key in enumerate(METRICS)}
        missing = {key: metric.reason for key, metric in answers.items() if metric.reason is not None}
        return {key: metric.value for key, metric in answers.items()}, missing

    def _metric(self, metric: Any) -> Answer:
        """A metric's value; what is not a finite number (a counter that was reset) stands for none."""
        if metric.nvmlReturn != 0:
            return Answer(None, self._nvml.reason(metric.nvmlReturn))
        value = float(metric.value)
        return Answer(round(value, 2)) if math.isfinite(value) else Answer(None, "SENTINEL")


def _nothing(reason: str) -> tuple[dict[str, float | None], dict[str, str]]:
    return dict.fromkeys(METRICS), dict.fromkeys(METRICS, reason)
