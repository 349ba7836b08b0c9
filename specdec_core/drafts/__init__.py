"""Learned drafters: modules that training and decoding share, and their checkpoints."""
