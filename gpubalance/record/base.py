"""What all records share: frozen, strict, and null instead of a number that nobody measured."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record whose keys carry their unit. Unknown keys are errors and NaN is not a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
