"""Compiled kernels for decoding on processors: built once where there is a compiler."""
