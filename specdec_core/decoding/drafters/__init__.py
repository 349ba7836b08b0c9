"""One module per drafting method; importing this package registers them all."""

from specdec_core.decoding.drafters import none, prompt_lookup, token_recycling

__all__ = ["none", "prompt_lookup", "token_recycling"]
