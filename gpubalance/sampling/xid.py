"""Listens for Xid events: the driver's own word that a GPU went wrong. Works without root and without dmesg."""

from __future__ import annotations

from collections.abc import Sequence

from gpubalance.node.nvml import Nvml


class XidListener:
    """Collects the Xids of the given GPUs. One that offers no events (a MIG slice) does not silence the others."""

    def __init__(self, nvml: Nvml, devices: Sequence[int]) -> None:
        self._nvml = nvml
        created = nvml.ask("EventSetCreate")
        self._set = created.value
        self.missing = created.reason
        """Why events of all GPUs, or of one of them, cannot be heard."""
        for device in devices if created.reason is None else ():
            registered = nvml.ask(
                "DeviceRegisterEvents", device, nvml.constant("nvmlEventTypeXidCriticalError"), self._set
            )
            self.missing = self.missing or registered.reason

    def poll(self) -> list[tuple[int | None, int]]:
        """(NVML index, Xid) of each event since the last call; never waits."""
        if self._set is None:
            return []
        events: list[tuple[int | None, int]] = []
        while True:
            answer = self._nvml.ask("EventSetWait_v2", None, self._set, 0)
            if answer.reason is not None:  # TIMEOUT: nothing is pending
                return events
            index = self._nvml.ask("DeviceGetIndex", None, answer.value.device)
            events.append((index.value, int(answer.value.eventData)))
