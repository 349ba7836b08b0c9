"""The structures of forward.cpp, field by field."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_float, c_int64, c_void_p


class Weight(Structure):
    """A packed weight."""

    _fields_ = (
        ("packed", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int64),
        ("inputs", c_int64),
        ("is_int8", c_int64),
    )


class Attention(Structure):
    """The attention half of a block."""

    _fields_ = (
        ("qkv", Weight),
        ("out", Weight),
        ("norm", c_void_p),
        ("post_norm", c_void_p),
        ("qk_norm", c_void_p),
        ("window", c_int64),
        ("rotary", c_int64),
    )


class Mlp(Structure):
    """The feed-forward half of a block."""

    _fields_ = (
        ("gate_up", Weight),
        ("down", Weight),
        ("norm", c_void_p),
        ("post_norm", c_void_p),
    )


class Block(Structure):
    """One block of a view; halves are null where the view skips them."""

    _fields_ = (
        ("attention", POINTER(Attention)),
        ("mlp", POINTER(Mlp)),
        ("slot", c_int64),
    )


class Model(Structure):
    """What all blocks share."""

    _fields_ = (
        ("hidden", c_int64),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("features", c_int64),
        ("is_silu", c_int64),
        ("eps", c_float),
        ("scale", c_float),
        ("final_norm", c_void_p),
        ("head", Weight),
    )


class Pass(Structure):
    """One forward pass."""

    _fields_ = (
        ("batch", c_int64),
        ("nodes", c_int64),
        ("embedded", c_void_p),
        ("lengths", c_void_p),
        ("starts", c_void_p),
        ("counts", c_void_p),
        ("extra", c_void_p),
        ("max_extra", c_int64),
        ("positions", c_void_p),
        ("rotary", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("slot_stride", c_int64),
        ("batch_stride", c_int64),
        ("head_stride", c_int64),
        ("logits", c_void_p),
        ("taps", c_void_p),
    )
