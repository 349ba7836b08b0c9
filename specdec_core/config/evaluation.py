"""What one evaluation is asked to do, and the content key under which its result is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.dtype import DType
from specdec_core.config.sampling import Sampling
from specdec_core.config.settings import KernelChoice
from specdec_core.hashing import json_hash

# Fields that say where things are found, not what they are: another folder must give the same key.
_LOCATION_FIELDS = {"target", "suite", "device"}


EvaluationMode = Literal["replay", "decode", "loss"]
Prefill = Literal["sparse", "dense"]
PREFILL_HELP = (
    "'sparse' reads the prompt without what is skipped, as the paper does; 'dense' reads it with "
    "the whole target and skips in decoding alone, which keeps every layer's cache"
)


class EvaluationRequest(Record):
    """Everything that determines one evaluation of a (sparse) target with a drafter."""

    target: str = Field(description="model reference, canonical text")
    target_identity: str = Field(description="content hash of configuration, weights, tokenizer")
    dtype: DType
    device: str = Field("cpu", description="torch device of the worker")
    kernels: KernelChoice = Field(
        "own",
        description="'own' where this build's kernels can run, else those of torch; a result's "
        "hardware says which ran",
    )
    skip: str = Field("", description="canonical skip set, empty for dense")
    prefill: Prefill = Field("sparse", description=PREFILL_HELP)
    drafter: DrafterConfig
    drafter_data: str = Field(
        "", description="content hash of what the drafter reads, such as a datastore; '' for none"
    )
    sampling: Sampling = Field(
        default_factory=Sampling,
        description="how tokens are chosen, and the verification rule; greedy by default",
    )
    suite: str = Field(description="where the suite is found: a path or a built-in domain")
    suite_hash: str = Field(description="content hash of the suite")
    domain: str
    template_hash: str = Field(description="content hash of prompt template and answer extraction")
    item_ids: tuple[str, ...] = Field(min_length=1)
    max_new_tokens: int = Field(ge=1)
    stop_policy: Literal["stop_string", "eos_only"] = Field(
        "stop_string", description="whether a template's stop string ends decoding"
    )
    batch_size: int = Field(1, ge=1, description="requests decoded together")
    mode: EvaluationMode = Field(
        "decode",
        description="'decode' runs the drafter in the loop; 'replay' decodes without drafting "
        "and replays the drafter on the output, exact for replayable drafters; 'loss' decodes "
        "nothing and takes the loss of references",
    )
    is_timed: bool = Field(False, description="whether its seconds are meant to be compared")
    record_gaps: bool = Field(
        False, description="whether samples keep the target's top-2 logit gap per output position"
    )
    repetition: str = Field(
        "", description="name of a repeated measurement; another name measures again"
    )
    code_version: str = Field(description="hash of the code that determines results")

    @property
    def key(self) -> str:
        """Hex SHA-256 over every field that determines the result, locations left out."""
        content = self.model_dump(mode="json", exclude=_LOCATION_FIELDS)
        # Where nothing is skipped both ways are one, and older keys know no other.
        if self.prefill == "sparse" or not self.skip:
            del content["prefill"]
        for name in self.drafter.places:
            del content["drafter"][name]
        return json_hash(content)
