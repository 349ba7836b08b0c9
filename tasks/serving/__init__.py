"""Serving one target for trial and evaluation: by command line and by HTTP."""
