// What the caller hands over; mirrored by structures.py, field by field.

#pragma once

#include "numbers.hpp"

extern "C" {

// A weight [outputs, inputs], laid out by groups of 32 outputs: [input pair][block of 16][16
// outputs][2 inputs] in bfloat16. With 8 bits, runs of up to 64 inputs with their scales behind:
// [input pair][4][block of 16][4 outputs][2 inputs] in sign and magnitude, [32] in float32.
struct Weight {
    const void *packed;
    const bf16 *bias;  // [outputs], interleaved as the packed outputs are; may be null
    int64_t outputs;
    int64_t inputs;  // even
    int64_t is_int8;
};

struct Attention {
    Weight qkv;
    Weight out;
    const float *norm;       // [hidden]
    const float *post_norm;  // [hidden] or null
    const float *qk_norm;    // [heads + kv_heads, head_dim] or null
    int64_t window;          // positions a query sees, itself included; 0 for all
    int64_t rotary;          // which pair of rotary tables
};

struct Mlp {
    Weight gate_up;  // blocks alternate: 16 gates, their 16 ups
    Weight down;
    const float *norm;
    const float *post_norm;
};

struct Block {
    const Attention *attention;  // null where the view skips it
    const Mlp *mlp;
    int64_t slot;
};

struct Model {
    int64_t hidden, heads, kv_heads, head_dim, features;
    int64_t is_silu;
    float eps, scale;
    const float *final_norm;
    Weight head;
};

struct Pass {
    int64_t batch, nodes;     // rows = batch * nodes
    const bf16 *embedded;     // [rows, hidden]
    const int32_t *lengths;   // [batch] committed cache rows
    const int32_t *starts;    // [batch] first cache row this pass writes
    const int32_t *counts;    // [rows] visible rows beyond the committed, itself included; 0: absent
    const int32_t *extra;     // [rows, max_extra] those cache rows, root first
    int64_t max_extra;
    const int32_t *positions;       // [rows]
    const bf16 *const *rotary;      // cosine and signed sine [positions, head_dim] of each pair
    bf16 *keys, *values;            // slot 0, sequence 0
    int64_t slot_stride, batch_stride, head_stride;  // elements
    bf16 *logits;                   // [rows, vocabulary]
    // Where hidden states [rows, hidden] go: in front of each block, behind the last, and normed
    // for the head; null for those not wanted, null as a whole for none.
    bf16 *const *taps;
};

}  // extern "C"
