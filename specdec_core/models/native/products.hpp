// Products of a few rows with packed weights, and what is done to their results in registers.

#pragma once

#include "bytes.hpp"

namespace {

constexpr int MAX_ROWS = 12;    // rows of one register tile: 12 x 2 accumulators
constexpr int AHEAD_ROWS = 10;  // rows from which products compute longer than they read

// acc[m][j] += x[m] . block j of one weight group, over `pairs` pairs of inputs in order. Fetches
// the same stretch from `ahead` on the way if it is not null.
template <int M, int J>
inline void tile(const bf16 *x, int64_t stride, const bf16 *w, int64_t pairs, __m512 (&acc)[M][J],
                 const bf16 *ahead = nullptr) {
    for (int64_t k = 0; k < pairs; ++k) {
        __m512bh weight[J];
        for (int j = 0; j < J; ++j) {
            weight[j] = (__m512bh)_mm512_loadu_si512(w + (k * J + j) * GROUP);
            if (ahead) _mm_prefetch(ahead + (k * J + j) * GROUP, _MM_HINT_T1);
        }
        for (int m = 0; m < M; ++m) {
            const __m512bh input = both(x + m * stride + 2 * k);
            for (int j = 0; j < J; ++j) acc[m][j] = _mm512_dpbf16_ps(acc[m][j], weight[j], input);
        }
    }
}

// Calls `body.template operator()<M>(row)` for tiles of nearly equal height that cover `rows`.
template <class Body> inline void for_tiles(int64_t rows, const Body &body) {
    const int64_t tiles = (rows + MAX_ROWS - 1) / MAX_ROWS;
    for (int64_t i = 0; i < tiles; ++i) {
        const int64_t row = rows * i / tiles;
        switch (rows * (i + 1) / tiles - row) {
        case 1: body.template operator()<1>(row); break;
        case 2: body.template operator()<2>(row); break;
        case 3: body.template operator()<3>(row); break;
        case 4: body.template operator()<4>(row); break;
        case 5: body.template operator()<5>(row); break;
        case 6: body.template operator()<6>(row); break;
        case 7: body.template operator()<7>(row); break;
        case 8: body.template operator()<8>(row); break;
        case 9: body.template operator()<9>(row); break;
        case 10: body.template operator()<10>(row); break;
        case 11: body.template operator()<11>(row); break;
        default: body.template operator()<12>(row); break;
        }
    }
}

// Calls `store(row, group, block 0, block 1)` for the products of contiguous rows `x` with groups.
// Few rows wait for memory, which is best read straight on; many compute meanwhile, and then it
// pays to fetch the next group during the last tile of this one.
template <class Store>
void product(const bf16 *x, int64_t rows, const Weight &w, Range groups, Store store) {
    const int64_t pairs = w.inputs / 2;
    const int64_t size = w.is_int8 ? byte_size(pairs) : w.inputs * GROUP * sizeof(bf16);
    for (int64_t group = groups.first; group < groups.last; ++group) {
        const char *packed = static_cast<const char *>(w.packed) + group * size;
        for_tiles(rows, [&]<int M>(int64_t row) {
            const bool is_last = row + M == rows && group + 1 < groups.last;
            __m512 acc[M][2];
            for (auto &pair : acc) pair[0] = pair[1] = _mm512_setzero_ps();
            const char *ahead = is_last && rows >= AHEAD_ROWS ? packed + size : nullptr;
            const bf16 *from = x + row * w.inputs;
            if (w.is_int8)
                byte_tile<M>(from, w.inputs, packed, pairs, acc, ahead);
            else
                tile<M, 2>(from, w.inputs, (const bf16 *)packed, pairs, acc, (const bf16 *)ahead);
            for (int m = 0; m < M; ++m) store(row + m, group, acc[m][0], acc[m][1]);
        });
    }
}

inline int64_t num_groups(const Weight &w) { return (w.outputs + GROUP - 1) / GROUP; }

// out = x . w + bias, the outputs of `groups`.
void linear(const bf16 *x, int64_t rows, const Weight &w, Range groups, bf16 *out) {
    product(x, rows, w, groups,
            [&](int64_t row, int64_t group, __m512 a, __m512 b) {
                const int64_t at = group * GROUP;
                bf16 *to = out + row * w.outputs + at;
                if (w.bias) {
                    a = _mm512_add_ps(a, load(w.bias + at));
                    b = _mm512_add_ps(b, load(w.bias + at + LANES));
                }
                if (at + GROUP <= w.outputs) {
                    store(to, a);
                    store(to + LANES, b);
                } else {
                    alignas(64) bf16 both[GROUP];
                    store(both, a);
                    store(both + LANES, b);
                    std::memcpy(to, both, (w.outputs - at) * sizeof(bf16));
                }
            });
}

// out = activation(gate) * up, [rows, features], the features of `groups`.
void gated(const bf16 *x, int64_t rows, const Weight &w, Range groups, bool is_silu, bf16 *out) {
    const int64_t features = w.outputs / 2;
    product(x, rows, w, groups,
            [&](int64_t row, int64_t group, __m512 gate, __m512 up) {
                if (w.bias) {
                    gate = _mm512_add_ps(gate, load(w.bias + group * GROUP));
                    up = _mm512_add_ps(up, load(w.bias + group * GROUP + LANES));
                }
                gate = rounded(gate);
                gate = rounded(is_silu ? silu(gate) : gelu_tanh(gate));
                store(out + row * features + group * LANES, _mm512_mul_ps(gate, rounded(up)));
            });
}

}  // namespace
