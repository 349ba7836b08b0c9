"""The library: models, decoding, drafters, evaluation, search, statistics."""
