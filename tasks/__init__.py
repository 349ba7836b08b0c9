"""Units of work: model workers, evaluation, search, calibration, benchmark, tracking."""
