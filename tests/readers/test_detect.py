"""Which tool wrote a file, and that no file makes a reader crash."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubalance.errors import UsageError
from gpubalance.readers.detect import read_foreign
from gpubalance.record.foreign import Foreign
from tests.readers.helpers import COPIES, OLD, REAL, copies_document, json_document
from tests.reports.helpers import KEPT

JSON, COPIES_JSON = json.dumps(json_document()).encode(), json.dumps(copies_document(), indent=3).encode()
TOOLS = {
    "text of nccl-tests": (REAL, "nccl-tests"),
    "an old one": (OLD.encode(), "nccl-tests"),
    "JSON of nccl-tests": (JSON, "nccl-tests"),
    "JSON with text before and behind it": (b"mpirun: 1 node\n" + JSON + b"\ndone\n", "nccl-tests"),
    "text of nvbandwidth": (COPIES, "nvbandwidth"),
    "JSON of nvbandwidth": (COPIES_JSON + b"\n\n", "nvbandwidth"),
    "a byte that is no text": (b"\xff\n" + REAL, "nccl-tests"),
}


@pytest.mark.parametrize(("data", "tool"), TOOLS.values(), ids=TOOLS.keys())
def test_the_tool_is_known_by_what_it_wrote(data: bytes, tool: str) -> None:
    found = read_foreign("a name that says nothing", data)
    assert found is not None
    assert found.tool == tool
    assert found.tests or found.copies


@pytest.mark.parametrize("path", KEPT.values(), ids=KEPT.keys())
def test_a_run_of_ours_is_left_to_its_own_reader(path: Any) -> None:
    assert read_foreign("run.json", path.read_bytes()) is None
    assert (
        read_foreign("run.json", b'{"schema_version": 1, "x": ["nvbandwidth"], "results": 1, "nccl_version": 2}')
        is None
    )


OTHERS = {
    "empty": (b"", "is empty"),
    "white space": (b"  \n\n", "is empty"),
    "prose": (b"the quick brown fox\n", "neither a gpubalance run nor a log"),
    "binary": (b"\x7fELF\0\0\1", "holds NUL bytes"),
    "compressed": (gzip.compress(REAL), "is compressed"),
    "JSON that is cut": (JSON[: len(JSON) // 2], "is not JSON"),
    "JSON that is cut at its first word": (b'{"results": [ "nccl_version"', "is cut short"),
    "a key twice": (b'{"nvbandwidth": {}, "nvbandwidth": {}}', "stands twice"),
    "NaN": (JSON.replace(b"250.0", b"NaN"), "no number of JSON"),
    "deep": (b'{"nvbandwidth": ' + 200_000 * b"[" + 200_000 * b"]" + b"}", "is not JSON"),
}


@pytest.mark.parametrize(("data", "told"), OTHERS.values(), ids=OTHERS.keys())
def test_what_is_no_result_is_wrong_use_with_the_reason(data: bytes, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_foreign("log", data)
    assert caught.value.message.startswith("log")
    assert told in caught.value.message


def outcome(data: bytes) -> Foreign | UsageError | None:
    try:
        return read_foreign("log", data)
    except UsageError as error:
        return error


def accepted_or_refused(data: bytes) -> None:
    """Nothing but a UsageError may come out, on one line; what is accepted holds only numbers that are measured."""
    found = outcome(data)
    if isinstance(found, UsageError):
        assert found.message.startswith("log")
        return
    for test in found.tests if found is not None else ():
        for row in test.rows:
            assert 0 <= row.bus_bandwidth_gb_per_s < 1e100
            assert row.time_us is None or 0 <= row.time_us < 1e100
            assert row.size_bytes >= 0
    for copy in found.copies if found is not None else ():
        assert all(cell is None or 0 <= cell < 1e100 for cells in copy.values for cell in cells)


PIECES = st.sampled_from(
    [line for text in (REAL, COPIES, OLD.encode()) for line in text.splitlines()[:40]]
    + [b"nan", b"-1", b"1e999", b"N/A", b"[1,0]<stdout>:", b"0: ", b"{", b"}", b"\x1b[0m", b"\0", b"9" * 50, b"#"]
)


@given(st.lists(PIECES | st.binary(max_size=12), max_size=40), st.sampled_from([b"\n", b" ", b"\r"]))
@settings(deadline=None, max_examples=300)
@example([b"# size count type busbw", b"1 2 float"], b"\n")
@example([b"# size count type time busbw algbw", b"1 2 f 1 2 3", b"4 5"], b"\n")
def test_any_mixture_of_lines_is_read_or_refused(pieces: list[bytes], end: bytes) -> None:
    accepted_or_refused(end.join(pieces))


@given(st.sampled_from([REAL, COPIES, JSON, COPIES_JSON]), st.data())
@settings(deadline=None, max_examples=300)
def test_any_cut_and_any_changed_stretch_is_read_or_refused(whole: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 40)))
    accepted_or_refused(whole[:begin] + data.draw(st.binary(max_size=12)) + whole[end:])
    accepted_or_refused(whole[:begin])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key within a document."""
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in entries] + [place for _, inner in entries for place in places_in(inner)]


@given(st.booleans(), st.integers(0, 10**6), VALUES)
@settings(deadline=None, max_examples=300)
def test_any_value_in_any_place_of_a_document_is_read_or_refused(of_copies: bool, place: int, value: Any) -> None:
    document = json.loads(json.dumps(copies_document() if of_copies else json_document()))
    places = places_in(document)
    container, key = places[place % len(places)]
    container[key] = value
    accepted_or_refused(json.dumps(document).encode("utf-8", "surrogatepass"))
