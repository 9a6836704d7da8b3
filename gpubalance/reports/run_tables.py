"""A run as tables: scores, ranks, throughput, collectives, what went wrong, what steered it."""

from __future__ import annotations

from gpubalance.analysis.balance import Balance
from gpubalance.analysis.facts import AttemptFacts, Facts
from gpubalance.analysis.sampled import Sampled
from gpubalance.checks.links import COMMUNICATION
from gpubalance.checks.verdict import Judgement
from gpubalance.record.run import Run
from gpubalance.reports.chart import column_name
from gpubalance.reports.collective_lines import (
    PLACES,
    TYPES,
    count_of,
    definitions_text,
    own_rows,
    redop_of,
    root_of,
)
from gpubalance.reports.common_tables import (
    IDENTITY,
    SPEED,
    environment_table,
    identity_cells,
    settings_table,
    speed_cells,
    versions_table,
    with_rows,
)
from gpubalance.reports.hang_tables import experiment_table, hang_table, search_table
from gpubalance.reports.limits import limit_lines
from gpubalance.reports.link_tables import host_link_table, link_table, matrix_table
from gpubalance.reports.many_ranks import others_line, worst_ranks
from gpubalance.reports.rank_table import speeds_of
from gpubalance.reports.table import NONE, Column, Table, number, words
from gpubalance.reports.workload_lines import heat_lines, throughput_lines

_TIMES = (
    Column("rank"),
    Column("compute", "ms"),
    Column("wait", "ms"),
    Column("blame", "ms"),
    Column("speed", "x ref"),
)
_GPU = (
    Column("useful", "%"),
    Column("SM", "%"),
    Column("NVML", "%"),
    Column("memory", "GB"),
    Column("clock", "MHz"),
    Column("power", "W"),
    Column("temp", "C"),
)
_CPU = (Column("cores", "used"), Column("memory", "GB"))


MOST_RANKS = 256
"""Rows of a table of ranks; the JSON document has all."""

_UNSEEN = Sampled(-1, 0, None, None, None, None, None, {}, None, None)
"""Of a device that nobody sampled."""


def score_table(judgement: Judgement) -> Table:
    """The balance, its factors, and the scores beside it that are never averaged into it."""
    first, facts = judgement.facts.first, judgement.facts
    time = min(100.0, first.balance.persistent * first.balance.transient / 100) if first else None
    level = facts.utilization.missing or "mean over largest device time"
    memory = facts.memory.missing or "emptiest over fullest of the ranks' own peaks"
    link, links = first.balance.link if first else None, facts.links.score if facts.links else None
    slowest = "not measured" if links is None else "slowest link over the median of its class"
    rows = (
        *(_balance_rows(first.balance) if first else ()),
        ("link", number(link, 1), NONE, "not measured" if link is None else "what the slowest link leaves"),
        _score("time", time, state_of(judgement, "straggler", "transient"), "persistent x transient"),
        _score("utilization", facts.utilization.score, state_of(judgement, "level", "too_small"), level),
        _score("memory", facts.memory.score, state_of(judgement, "memory_skew", "leaked_context"), memory),
        _score("communication", links, state_of(judgement, *COMMUNICATION), slowest),
    )
    columns = (Column("score", words=True), Column("value", "of 100"), *words("state", "meaning"))
    return Table("Scores", columns, rows)


def _balance_rows(balance: Balance) -> tuple[tuple[str, ...], ...]:
    interval = f"95 % interval {balance.low:.1f} to {balance.high:.1f}"
    bound = "; communication-bound: this or more" if balance.communication_bound else ""
    lost = f"{max(0.0, balance.lost_ms):.2f} of {balance.step_ms:.2f} ms a step lost; "
    return (
        ("balance", number(balance.score, 1), NONE, f"{lost}{interval}{bound}"),
        ("persistent", number(balance.persistent, 1), NONE, "what steady slowness leaves"),
        ("transient", number(balance.transient, 1), NONE, "what slowness now and then leaves"),
    )


def _score(name: str, value: float | None, state: str, meaning: str) -> tuple[str, ...]:
    return name, number(value, 1), state if value is not None else NONE, meaning


def state_of(judgement: Judgement, *ids: str) -> str:
    """The worst state of these checks; findings come worst first."""
    return next((finding.state.value for finding in judgement.findings if finding.id in ids), "not judged")


def rank_table(run: Run, facts: Facts) -> Table:
    """A row a rank of the attempt that is judged."""
    first, on_cpu = facts.first, run.plan.backend == "gloo"
    columns = (*_TIMES, *(_CPU if on_cpu else _GPU))
    if first is None:
        return Table("Ranks", columns, ())
    shown, speeds = worst_ranks(first, MOST_RANKS), speeds_of(first)
    memory = {device.device: device.own for device in facts.memory.devices}
    rows = tuple(
        (
            *_times(first, rank, speeds[rank]),
            *(_cpu_cells(facts, rank) if on_cpu else _gpu_cells(facts, rank, memory.get(first.device_of_rank[rank]))),
        )
        for rank in shown
    )
    return Table(
        "Ranks",
        columns,
        rows,
        (*others_line(first, shown), *limit_lines(first), *heat_lines(facts), *throughput_lines(run, facts)),
    )


def cause_table(facts: Facts) -> Table:
    """What explains the excess of each rank that was asked about."""
    first = facts.first
    columns = (Column("rank"), Column("excess", "%"), *words("cause"), Column("explains", "%"), *words("found"))
    rows = tuple(
        (
            str(each.rank),
            number(each.excess, 1, 100),
            each.cause or "not attributed",
            number(each.coverage, scale=100),
            "; ".join(f"{part.evidence}: {100 * part.coverage:.0f} %" for part in each.parts) or NONE,
        )
        for each in (first.attributions if first else ())
    )
    return Table("Causes", columns, rows)


def who_table(run: Run, facts: Facts) -> Table:
    """Which device each rank worked on, by all its names."""
    first = facts.first
    devices = first.device_of_rank if first else range(len(run.plan.devices))
    shown = worst_ranks(first, MOST_RANKS) if first else range(min(MOST_RANKS, len(devices)))
    rows = tuple((str(rank), *identity_cells(run.plan.devices[devices[rank]])) for rank in shown)
    return Table("Devices of the ranks", (Column("rank"), *IDENTITY), rows)


def _times(first: AttemptFacts, rank: int, speed: float) -> tuple[str, ...]:
    times = (first.compute_ms[rank], first.wait_ms[rank], first.balance.blame_ms[rank])
    return str(rank), *(number(value, 2) for value in times), number(speed, 2)


def _sampled(facts: Facts, rank: int) -> Sampled:
    return (facts.sampled[rank] if rank < len(facts.sampled) else None) or _UNSEEN


def _gpu_cells(facts: Facts, rank: int, own: int | None) -> tuple[str, ...]:
    sampled = _sampled(facts, rank)
    useful = facts.utilization.useful[rank] if rank < len(facts.utilization.useful) else None
    return (
        number(useful, scale=100),
        number(sampled.sm, scale=100),
        number(sampled.utilization, scale=100),
        number(own, 1, 1e-9),
        number(sampled.sm_clock_mhz),
        number(sampled.power_w),
        number(sampled.temperature_c),
    )


def _cpu_cells(facts: Facts, rank: int) -> tuple[str, ...]:
    sampled = _sampled(facts, rank)
    return number(sampled.cpu, 2), number(sampled.resident_bytes, 2, 1e-9)


def collective_table(run: Run) -> Table:
    """Every collective at every size with nccl-tests' columns, eager and replayed from a CUDA graph."""
    columns = (
        *words("collective", "placement", "mode", "backend"),
        Column("ranks"),
        Column("size", "B"),
        Column("count", "elements"),
        *words("type", "redop"),
        Column("root"),
        Column("time", "us"),
        Column("slowest", "us"),
        Column("host", "us"),
        Column("algbw", "GB/s"),
        Column("busbw", "GB/s"),
        Column("#wrong"),
    )
    rows = tuple(
        (
            row.collective,
            PLACES[row.placement],
            row.mode,
            row.backend,
            str(row.ranks),
            str(row.size_bytes),
            str(count_of(row)),
            TYPES.get(row.dtype, row.dtype),
            redop_of(row),
            str(root_of(row)),
            number(row.time_us, 1),
            number(row.time_max_us, 1),
            number(row.host_time_us, 1),
            f"{row.algorithm_bandwidth_gb_per_s:.4g}",
            f"{row.bus_bandwidth_gb_per_s:.4g}",
            str(row.wrong_elements),
        )
        for row in run.collectives
    )
    return Table("Collectives", columns, rows, (definitions_text(run, own_rows(run)),) if rows else ())


def nccl_table(run: Run) -> Table:
    """What NCCL's log says of each message."""
    choices = run.nccl.choices if run.nccl is not None else []
    columns = (*words("collective"), Column("size", "B"), *words("algorithm", "protocol"), Column("channels"))
    rows = tuple(
        (choice.collective, str(choice.size_bytes), choice.algorithm, choice.protocol, number(choice.channels))
        for choice in choices
    )
    return Table("What NCCL chose, by its log", columns, rows)


def transport_table(run: Run) -> Table:
    """Which way NCCL moves data between two ranks."""
    ways = run.nccl.transports if run.nccl is not None else []
    columns = (Column("from rank"), Column("to rank"), *words("via"), Column("channels"))
    rows = tuple((str(way.sender), str(way.receiver), way.via, str(way.channels)) for way in ways)
    return Table("Which way NCCL moves data, by its log", columns, rows)


def speed_table(run: Run) -> Table:
    """Quick measures of each device, all at the same time."""
    rows = tuple((column_name(run.plan.devices[p.device], p.device), *speed_cells(p)) for p in run.probes)
    return Table("Each device alone, all at the same time", SPEED, rows)


def error_table(run: Run) -> Table:
    """What went wrong, the first cause marked."""
    columns = (
        *words("kind", "where"),
        Column("rank"),
        *words("phase"),
        Column("at", "s"),
        *words("first cause", "message"),
    )
    rows = tuple(
        (
            error.kind,
            error.where,
            number(error.rank),
            error.phase or NONE,
            number(error.t_s, 1),
            "yes" if error.first_cause else "",
            error.message,
        )
        for error in run.errors
    )
    return Table("Errors", columns, rows)


def skipped_table(run: Run) -> Table:
    """What was not measured, and why."""
    health = run.samples.health
    rows = [(skip.what, skip.reason) for skip in run.skipped]
    if health is not None:
        more = (
            ("Xid events", health.xid_missing),
            ("sensor hung in", health.hung_in),
            ("sensor died with", health.died_with),
        )
        rows += [(what, why) for what, why in more if why is not None]
    return Table("Not measured", words("what", "why"), tuple(rows))


def main_tables(run: Run, judgement: Judgement) -> list[Table]:
    """What people look at first."""
    facts = judgement.facts
    return with_rows([score_table(judgement), rank_table(run, facts), cause_table(facts), who_table(run, facts)])


def more_tables(run: Run) -> list[Table]:
    """The rest of it."""
    versions = {"gpubalance": run.gpubalance_version, **(run.ranks[0].versions if run.ranks else {})}
    return with_rows([
        hang_table(run),
        search_table(run),
        collective_table(run),
        nccl_table(run),
        transport_table(run),
        matrix_table(run),
        link_table(run),
        host_link_table(run),
        experiment_table(run),
        speed_table(run),
        error_table(run),
        skipped_table(run),
        versions_table(run.node, versions),
        settings_table(run.settings),
        environment_table(run.node),
    ])  # fmt: skip
