"""Reads the file that nccl-tests writes with -J.

Versions 1 to 3 of its form (NVIDIA/nccl-tests, src/util.cu): results[] of size, type, and an object or null for each
placement; config with nthreads, ngpus, graph, and devices, one for each process.
"""

from __future__ import annotations

from typing import Any

from gpubalance.errors import UsageError
from gpubalance.readers.nccl_words import collective_of, dtype_of, redop_of, version_of
from gpubalance.readers.numbers import count, measured
from gpubalance.record.foreign import IN_PLACE, OUT_OF_PLACE, CollectiveTest, Foreign, TheirDevice, TheirRow


def read_nccl_tests_json(name: str, document: dict[str, Any]) -> Foreign:
    """The one test of a document.

    Raises UsageError when there is no row in it, when its form is another one, or for a number that nothing measures.
    """
    config = _part(name, document, "config", dict)
    devices = [_device(name, entry) for entry in _part(name, config, "devices", list)]
    entries = _part(name, document, "results", list)
    rows = [row for number, entry in enumerate(entries) for row in _rows(f"{name}: results[{number}]", entry)]
    if not rows:
        raise UsageError(f"{name}: no result in the file of nccl-tests", "let the test run to its end")
    average = _average(name, document)
    test = CollectiveTest(
        collective=_collective(document),
        ranks=_ranks(name, config, len(devices)),
        nodes=len({host for _, host in devices}) or None,
        mode="graph" if _count(name, config, "graph", 0) > 0 else "eager",
        rows=tuple(rows),
        complete="end_time" in document and average is not None,
        devices=tuple(device for device, _ in devices),
        nccl_version=version_of(_count(name, document, "nccl_version", 0)),
        average_bus_bandwidth_gb_per_s=average,
        out_of_bounds=_count(name, _part(name, document, "out_of_bounds", dict), "count", 0),
        remarks=tuple(_remarks(name, document, config)),
    )
    return Foreign("nccl-tests", (test,))


def _part(name: str, parent: dict[str, Any], key: str, kind: type) -> Any:
    value = parent.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise UsageError(f"{name}: {key} has a form that nccl-tests does not write")
    return value


def _count(name: str, parent: dict[str, Any], key: str, otherwise: int) -> int:
    value = parent.get(key)
    return otherwise if value is None else count(value, f"{name}: {key}")


def _rows(where: str, entry: Any) -> list[TheirRow]:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} has a form that nccl-tests does not write")
    rows = []
    for placement in (OUT_OF_PLACE, IN_PLACE):
        cells = entry.get(placement)
        if cells is None:
            continue
        if not isinstance(cells, dict):
            raise UsageError(f"{where}: {placement} has a form that nccl-tests does not write")
        wrong = cells.get("nwrong")
        rows.append(
            TheirRow(
                size_bytes=count(entry.get("size"), f"{where}: size"),
                dtype=dtype_of(str(entry.get("type"))),
                placement=placement,
                time_us=measured(cells["time"], f"{where}: time") if "time" in cells else None,
                algorithm_bandwidth_gb_per_s=measured(cells.get("alg_bw"), f"{where}: alg_bw"),
                bus_bandwidth_gb_per_s=measured(cells.get("bus_bw"), f"{where}: bus_bw"),
                wrong_elements=None if wrong is None else count(wrong, f"{where}: nwrong"),
                redop=redop_of(None if entry.get("redop") is None else str(entry["redop"])),
            )
        )
    return rows


def _device(name: str, entry: Any) -> tuple[TheirDevice, str]:
    """With the name of its host, which only tells how many there are."""
    if not isinstance(entry, dict):
        raise UsageError(f"{name}: devices have a form that nccl-tests does not write")
    return TheirDevice(str(entry.get("device_info", "")), str(entry.get("device_hex", ""))), str(entry.get("hostname"))


def _ranks(name: str, config: dict[str, Any], processes: int) -> int | None:
    """It lists one device for each process, however many each of them drives."""
    if "ngpus" not in config or processes == 0:
        return None
    return processes * _count(name, config, "nthreads", 1) * _count(name, config, "ngpus", 1)


def _collective(document: dict[str, Any]) -> str | None:
    arguments = document.get("args")
    return collective_of(str(arguments[0])) if isinstance(arguments, list) and arguments else None


def _average(name: str, document: dict[str, Any]) -> float | None:
    """Version 1 of the form misspells both keys."""
    for key, inner in (("average_bus_bandwidth", "bandwidth"), ("average_bus_bandwidith", "bandwidith")):
        part = _part(name, document, key, dict)
        if part.get(inner) is not None:
            return measured(part[inner], f"{name}: {key}")
    return None


def _remarks(name: str, document: dict[str, Any], config: dict[str, Any]) -> list[str]:
    found = [str(text)[:200] for text in _part(name, document, "errors", list) if text]
    if config.get("blocking_collectives") == "true":
        found.append("it waits after each operation (-z), gpubalance does not")
    grouped = _count(name, config, "aggregated_iterations", 1)
    if grouped > 1:
        found.append(f"it groups {grouped} operations (-m), gpubalance does not")
    return found
