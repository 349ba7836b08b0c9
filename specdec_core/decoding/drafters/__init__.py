"""One module per drafting method; importing this package registers them all."""

from specdec_core.decoding.drafters import (
    backoff_tree,
    draft_model,
    eagle,
    layer_skip,
    lookahead,
    medusa,
    none,
    prompt_lookup,
    ptd,
    rest,
    self_draft,
    suffix_automaton,
    synthetic,
    token_recycling,
)

__all__ = [
    "backoff_tree",
    "draft_model",
    "eagle",
    "layer_skip",
    "lookahead",
    "medusa",
    "none",
    "prompt_lookup",
    "ptd",
    "rest",
    "self_draft",
    "suffix_automaton",
    "synthetic",
    "token_recycling",
]
