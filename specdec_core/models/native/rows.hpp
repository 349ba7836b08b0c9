// What happens to single rows between the products: norms, residual sums, rotation.

#pragma once

#include <cmath>
#include <cstring>

#include "structures.hpp"

namespace {

// Root-mean-square norm of one row; `to` may be `x`.
inline void rms_norm(const bf16 *x, const float *weight, int64_t size, float eps, bf16 *to) {
    __m512 squares = _mm512_setzero_ps();
    for (int64_t i = 0; i < size; i += LANES) {
        const __m512 value = load(x + i);
        squares = _mm512_fmadd_ps(value, value, squares);
    }
    const float factor = 1.0f / std::sqrt(_mm512_reduce_add_ps(squares) / size + eps);
    for (int64_t i = 0; i < size; i += LANES) {
        const __m512 scaled = _mm512_mul_ps(load(x + i), _mm512_set1_ps(factor));
        store(to + i, _mm512_mul_ps(scaled, _mm512_loadu_ps(weight + i)));
    }
}

// x += delta, after the post norm where there is one; `scratch` holds a row.
inline void add_row(bf16 *x, const bf16 *delta, const float *post_norm, int64_t size, float eps,
                    bf16 *scratch) {
    if (post_norm) {
        rms_norm(delta, post_norm, size, eps, scratch);
        delta = scratch;
    }
    for (int64_t i = 0; i < size; i += LANES)
        store(x + i, _mm512_add_ps(load(x + i), load(delta + i)));
}

// Norms and rotates one head of one row in place.
inline void rotate(bf16 *x, const float *norm, const bf16 *cos, const bf16 *sin, int64_t head_dim,
                   float eps) {
    if (norm) rms_norm(x, norm, head_dim, eps, x);
    const int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i += LANES) {
        const __m512 low = load(x + i), high = load(x + half + i);
        const __m512 low_cos = rounded(_mm512_mul_ps(low, load(cos + i)));
        const __m512 high_cos = rounded(_mm512_mul_ps(high, load(cos + half + i)));
        store(x + i, _mm512_add_ps(low_cos, _mm512_mul_ps(high, load(sin + i))));
        store(x + half + i, _mm512_add_ps(high_cos, _mm512_mul_ps(low, load(sin + half + i))));
    }
}

// Rotates queries and keys of all rows and writes keys and values to the cache; this thread's share.
void place(const Model &m, const Pass &p, const Attention &a, int64_t slot, bf16 *qkv, int thread,
           int threads) {
    const int64_t d = m.head_dim, heads = m.heads + 2 * m.kv_heads;
    const bf16 *cos = p.rotary[2 * a.rotary], *sin = p.rotary[2 * a.rotary + 1];
    const Range share = part(p.batch * p.nodes * heads, thread, threads);
    for (int64_t i = share.first; i < share.last; ++i) {
        const int64_t row = i / heads, head = i % heads;
        if (!p.counts[row]) continue;
        bf16 *x = qkv + i * d;
        const int64_t at = p.positions[row] * d;
        if (head < m.heads + m.kv_heads)
            rotate(x, a.qk_norm ? a.qk_norm + head * d : nullptr, cos + at, sin + at, d, m.eps);
        if (head < m.heads) continue;
        const int64_t sequence = row / p.nodes, kv = (head - m.heads) % m.kv_heads;
        const int64_t to = slot * p.slot_stride + sequence * p.batch_stride + kv * p.head_stride +
                           (p.starts[sequence] + row % p.nodes) * d;
        std::memcpy((head < m.heads + m.kv_heads ? p.keys : p.values) + to, x, d * sizeof(bf16));
    }
}

}  // namespace
