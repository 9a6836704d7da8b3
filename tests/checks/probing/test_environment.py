"""C5: variables of NCCL and torch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubalance.checks.finding import State
from gpubalance.checks.probing.environment import nccl_settings
from gpubalance.checks.probing.nccl_variables import COSTLY, NVLS, SELECTORS
from gpubalance.record.probe import Probe
from tests.checks.probing.helpers import make_probe, only, states


def with_variables(variables: dict[str, str], **values: Any) -> Probe:
    return make_probe(node={"environment": variables}, **values)


def test_without_variables_it_passes() -> None:
    (finding,) = only("C5", make_probe())
    assert (finding.state, finding.message) == (State.PASS, "no variable is set that slows NCCL or torch down")


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("NCCL_P2P_DISABLE", "1", State.WARN),
        ("NCCL_P2P_DISABLE", "0", None),
        ("NCCL_P2P_DISABLE", "", None),
        ("NCCL_P2P_LEVEL", "SYS", State.WARN),
        ("NCCL_P2P_LEVEL", "0", State.WARN),  # a number here means a distance
        ("NCCL_P2P_DIRECT_DISABLE", "1", State.WARN),
        ("NCCL_SHM_DISABLE", "1", State.WARN),
        ("NCCL_SHM_DISABLE", "0", None),
        ("NCCL_NVB_DISABLE", "1", State.WARN),
        ("NCCL_IB_DISABLE", "1", State.WARN),
        ("NCCL_IB_DISABLE", " 0 ", None),
        ("NCCL_NET_GDR_LEVEL", "LOC", State.WARN),
        ("NCCL_ALGO", "Ring", State.WARN),
        ("NCCL_PROTO", "Simple", State.WARN),
        ("NCCL_BUFFSIZE", "8388608", State.WARN),
        ("NCCL_BUFFSIZE", "4194304", None),
        ("NCCL_NTHREADS", "256", State.WARN),
        ("NCCL_MIN_NCHANNELS", "32", State.WARN),
        ("NCCL_MAX_NCHANNELS", "2", State.WARN),
        ("NCCL_MIN_CTAS", "16", State.WARN),
        ("NCCL_MAX_CTAS", "4", State.WARN),
        ("NCCL_CHECKS_DISABLE", "1", State.WARN),
        ("NCCL_CHECK_POINTERS", "1", State.WARN),
        ("NCCL_LAUNCH_MODE", "GROUP", State.WARN),
        ("NCCL_LAUNCH_MODE", "PARALLEL", None),
        ("NCCL_CUMEM_ENABLE", "0", State.WARN),
        ("NCCL_CUMEM_ENABLE", "1", None),
        ("NCCL_CUMEM_HOST_ENABLE", "0", State.WARN),
        ("NCCL_DMABUF_ENABLE", "0", State.WARN),
        ("NCCL_DMABUF_ENABLE", "1", None),
        ("NCCL_MNNVL_ENABLE", "0", State.WARN),
        ("NCCL_PXN_DISABLE", "1", State.WARN),
        ("NCCL_RAS_ENABLE", "0", State.WARN),
        ("NCCL_RAS_ENABLE", "1", None),
        ("NCCL_SET_STACK_SIZE", "1", State.WARN),
        ("NCCL_DEBUG", "TRACE", State.WARN),
        ("NCCL_DEBUG", "trace", State.WARN),
        ("NCCL_DEBUG", "INFO", State.INFO),
        ("NCCL_DEBUG", "WARN", State.INFO),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", State.WARN),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", State.WARN),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", None),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", State.WARN),
        ("TORCH_DISTRIBUTED_DEBUG", "OFF", None),
        ("NCCL_SOCKET_IFNAME", "eth0", State.INFO),
        ("NCCL_IB_HCA", "mlx5", State.INFO),
        ("GLOO_SOCKET_IFNAME", "lo", State.INFO),
        ("NCCL_SOMETHING_NEW", "7", State.INFO),
        ("NCCL_VERSION", "2.28.9-1", None),
        ("OMP_NUM_THREADS", "1", None),
    ],
)
def test_values_matter(name: str, value: str, state: State | None) -> None:
    told = [f for f in only("C5", with_variables({name: value})) if f.state is not State.PASS]
    assert [f.state for f in told] == ([] if state is None else [state])
    for finding in told:
        assert finding.observed == f"{name}={value}"
        assert finding.message.startswith(f"{name}={value} ")
        assert "set in the environment" in finding.evidence
        assert finding.next_step == (f"unset {name}" if state is State.WARN else None)


@pytest.mark.parametrize("variable", [*COSTLY, NVLS], ids=lambda variable: variable.name)
def test_every_entry_of_the_table_reads_well(variable: Any) -> None:
    assert len(f"{variable.name}=1234 {variable.effect}") <= 80
    assert variable.why.endswith(".")
    assert variable.name.startswith(("NCCL_", "TORCH_"))


def test_no_variable_has_two_entries() -> None:
    names = [variable.name for variable in (*COSTLY, NVLS)]
    assert len(set(names)) == len(names)
    assert set(names) & set(SELECTORS) == {"NCCL_DEBUG"}  # its levels differ


@pytest.mark.parametrize(
    ("count", "readings", "value", "state"),
    [
        (4, {}, "0", State.WARN),
        (8, {"compute_capability_major": 10}, "0", State.WARN),
        (3, {}, "0", State.INFO),
        (8, {"compute_capability_major": 8}, "0", State.INFO),
        (8, {"compute_capability_major": ("NOT_SUPPORTED",)}, "0", State.INFO),
        (8, {"nvlink_count": ("NOT_SUPPORTED",)}, "0", State.INFO),
        (8, {"nvlink_count": 0}, "0", State.INFO),
        (8, {}, "1", None),
        (8, {}, "2", None),
    ],
)
def test_nvls_counts_where_there_is_something_to_lose(
    count: int, readings: dict[str, Any], value: str, state: State | None
) -> None:
    probe = with_variables({"NCCL_NVLS_ENABLE": value}, readings=[readings] * count)
    told = [f.state for f in only("C5", probe) if f.state is not State.PASS]
    assert told == ([] if state is None else [state])


def test_a_file_counts_like_the_environment() -> None:
    (finding,) = only("C5", make_probe(host={"nccl_conf": {"/etc/nccl.conf": {"NCCL_P2P_DISABLE": "1"}}}))
    assert finding.state is State.WARN
    assert finding.evidence[1] == "set in /etc/nccl.conf"
    assert finding.next_step == "remove NCCL_P2P_DISABLE from /etc/nccl.conf"


def test_the_environment_wins_over_the_first_file_and_that_over_the_second() -> None:
    files = {
        "~/.nccl.conf": {"NCCL_ALGO": "Tree", "NCCL_PROTO": "LL"},
        "/etc/nccl.conf": {"NCCL_PROTO": "Simple", "NCCL_NTHREADS": "64"},
    }
    settings = nccl_settings(with_variables({"NCCL_ALGO": "Ring"}, host={"nccl_conf": files}))
    assert {name: (given.value, given.place) for name, given in settings.items()} == {
        "NCCL_ALGO": ("Ring", "the environment"),
        "NCCL_PROTO": ("LL", "~/.nccl.conf"),
        "NCCL_NTHREADS": ("64", "/etc/nccl.conf"),
    }


def test_a_warning_leaves_no_pass_beside_it() -> None:
    found = only("C5", with_variables({"NCCL_P2P_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0"}))
    assert states(found) == ["warn", "info"]


def test_a_long_value_stands_in_the_details_only() -> None:
    value = "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4"
    finding = only("C5", with_variables({"NCCL_IB_HCA": value}))[1]
    assert finding.message == "NCCL_IB_HCA chooses the InfiniBand cards"
    assert finding.observed == f"NCCL_IB_HCA={value}"


def test_without_a_snapshot_the_environment_is_not_known() -> None:
    assert states(only("C5", make_probe().model_copy(update={"node": None}))) == ["unknown"]


@given(st.dictionaries(st.sampled_from([v.name for v in COSTLY] + ["NCCL_X", "HOME"]), st.text(max_size=30)))
def test_any_environment_is_judged(variables: dict[str, str]) -> None:
    found = only("C5", with_variables(variables))
    assert all(finding.next_step for finding in found if finding.state is State.WARN)
    assert any(f.state is State.PASS for f in found) != any(f.state is State.WARN for f in found)
