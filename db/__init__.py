"""SQL store of targets, runs, evaluations, skip profiles and benchmarks, and its REST API."""
