"""The state folder, and the last verdict in it. Plain types only: `gpubalance verdict` is asked before every job, and
importing pydantic would take longer than everything else it does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

KINDS = ("bench", "probe")
VERDICTS = ("pass", "warn", "fail", "inconclusive")
LAST_VERDICT_SCHEMA = 1

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")


@dataclass(frozen=True)
class LastVerdict:
    """What the last real run of one kind said about this node."""

    kind: str
    """bench or probe."""
    hostname: str
    run_id: str
    ended_at: str
    """UTC, ISO 8601."""
    verdict: str
    sentence: str
    exit_code: int
    scope: str | None
    """What was left out, such as `1 of 8 GPUs`; null when the whole node was looked at."""
    record: str | None
    """Where the record was saved."""
    gpubalance_version: str
    schema_version: int = LAST_VERDICT_SCHEMA

    @property
    def ended(self) -> datetime:
        """When the run ended, with its zone."""
        return datetime.fromisoformat(self.ended_at)


def state_home(environment: Mapping[str, str]) -> Path | None:
    """Where gpubalance keeps what outlives a run; None without a home (an unknown uid in a container)."""
    base = environment.get("XDG_STATE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "gpubalance"
    home = environment.get("HOME")
    return Path(home) / ".local/state/gpubalance" if home and Path(home).is_absolute() else None


def end_of(started_at: str, duration_s: float) -> str:
    """When a run ended: ISO 8601, UTC. A start without a zone is taken as UTC, as all records are."""
    started = datetime.fromisoformat(started_at)
    aware = started if started.tzinfo is not None else started.replace(tzinfo=timezone.utc)
    return (aware + timedelta(seconds=duration_s)).astimezone(timezone.utc).isoformat(timespec="milliseconds")


def last_verdict_path(home: Path, hostname: str, kind: str) -> Path:
    """One file a host and kind: a home on NFS is shared by all nodes of a cluster."""
    return home / "verdicts" / f"{_UNSAFE.sub('_', hostname)[:100]}.{kind}.json"


def save_last_verdict(home: Path, last: LastVerdict) -> None:
    """Replace the last verdict of this host and kind, whole. Of two that write at once one stays. Raises OSError."""
    from gpubalance.record.file import save_text

    path = last_verdict_path(home, last.hostname, last.kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_text(path, json.dumps(asdict(last), allow_nan=False, ensure_ascii=True) + "\n")


def load_last_verdicts(home: Path, hostname: str) -> list[LastVerdict]:
    """The last verdict of each kind on this host, newest first. Raises ValueError that names a damaged file."""
    found = [_load(last_verdict_path(home, hostname, kind), hostname, kind) for kind in KINDS]
    return sorted((last for last in found if last is not None), key=lambda last: last.ended, reverse=True)


def _load(path: Path, hostname: str, kind: str) -> LastVerdict | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is damaged: it is not UTF-8") from None
    try:
        last = _parsed(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if (last.hostname, last.kind) != (hostname, kind):
        raise ValueError(f"{path} is about {last.kind} on {last.hostname}")
    return last


def _parsed(values: Any) -> LastVerdict:
    names = {field.name for field in fields(LastVerdict)}
    if not isinstance(values, dict) or set(values) != names:
        raise ValueError("it does not hold a verdict")
    optional = ("scope", "record")
    texts = names - {"exit_code", "schema_version", *optional}
    right = all(isinstance(values[name], str) for name in texts)
    right = right and all(values[name] is None or isinstance(values[name], str) for name in optional)
    if not right or values["kind"] not in KINDS or values["verdict"] not in VERDICTS:
        raise ValueError("a value is of the wrong kind")
    if type(values["exit_code"]) is not int or values["exit_code"] not in range(4):
        raise ValueError("exit_code is not one of 0 to 3")
    last = LastVerdict(**values)
    if last.ended.tzinfo is None:
        raise ValueError("ended_at has no zone")
    return last
