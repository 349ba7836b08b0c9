// Attention of tree nodes over a cache: by position, so that it does not matter where nodes lie.

#pragma once

#include <algorithm>
#include <cmath>

#include "products.hpp"

namespace {

constexpr int CHUNK = 24;  // queries that share the packing of keys and values

// Transposes 16 rows of 16 32-bit values.
inline void transpose(__m512i (&r)[LANES]) {
    __m512i t[LANES];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; ++j) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

// Keys of 16 positions as a weight block: [head_dim / 2 pairs][16 positions][2].
inline void pack_keys(const bf16 *const (&rows)[LANES], int64_t head_dim, bf16 *to) {
    for (int64_t d = 0; d < head_dim; d += GROUP) {
        __m512i r[LANES];
        for (int i = 0; i < LANES; ++i) r[i] = _mm512_loadu_si512(rows[i] + d);
        transpose(r);
        for (int i = 0; i < LANES; ++i) _mm512_storeu_si512(to + (d / 2 + i) * GROUP, r[i]);
    }
}

// Values of 16 positions as weight groups: [head_dim / 32][8 pairs of positions][32 dims][2].
inline void pack_values(const bf16 *const (&rows)[LANES], int64_t head_dim, bf16 *to) {
    alignas(64) uint16_t order[2][GROUP];
    for (int i = 0; i < GROUP; ++i)
        for (int half = 0; half < 2; ++half) order[half][i] = half * LANES + i / 2 + (i % 2) * GROUP;
    const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
    for (int64_t d = 0; d < head_dim; d += GROUP)
        for (int i = 0; i < LANES; i += 2, to += 2 * GROUP) {
            const __m512i a = _mm512_loadu_si512(rows[i] + d);
            const __m512i b = _mm512_loadu_si512(rows[i + 1] + d);
            _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
            _mm512_storeu_si512(to + GROUP, _mm512_permutex2var_epi16(a, high, b));
        }
}

// scores[q, 16] of `count` queries for one packed tile of keys, times `scale`.
inline void score_tile(const bf16 *queries, int64_t count, int64_t head_dim, const bf16 *keys,
                       float scale, float *scores, int64_t stride) {
    for_tiles(count, [&]<int M>(int64_t row) {
        // Two halves of the head side by side: a single sum would wait for itself.
        __m512 low[M][1], high[M][1];
        for (int m = 0; m < M; ++m) low[m][0] = high[m][0] = _mm512_setzero_ps();
        const bf16 *query = queries + row * head_dim;
        for (int64_t k = 0; k < head_dim / 4; ++k) {
            tile<M, 1>(query + 2 * k, head_dim, keys + k * GROUP, 1, low);
            tile<M, 1>(query + head_dim / 2 + 2 * k, head_dim, keys + (head_dim / 4 + k) * GROUP, 1,
                       high);
        }
        for (int m = 0; m < M; ++m)
            _mm512_storeu_ps(scores + (row + m) * stride,
                             _mm512_mul_ps(_mm512_add_ps(low[m][0], high[m][0]),
                                           _mm512_set1_ps(scale)));
    });
}

// mixed[q, head_dim] += weights[q, 16] . one packed tile of values.
inline void mix_tile(const bf16 *weights, int64_t stride, int64_t count, int64_t head_dim,
                     const bf16 *values, float *mixed) {
    for (int64_t d = 0; d < head_dim; d += GROUP, values += LANES * GROUP)
        for_tiles(count, [&]<int M>(int64_t row) {
            float *to = mixed + row * head_dim + d;
            __m512 acc[M][2];
            for (int m = 0; m < M; ++m)
                for (int j = 0; j < 2; ++j)
                    acc[m][j] = _mm512_loadu_ps(to + m * head_dim + j * LANES);
            tile<M, 2>(weights + row * stride, stride, values, LANES / 2, acc);
            for (int m = 0; m < M; ++m)
                for (int j = 0; j < 2; ++j)
                    _mm512_storeu_ps(to + m * head_dim + j * LANES, acc[m][j]);
        });
}

// Weights e^(score - largest) of positions first .. last-1 and zero elsewhere in the tiles from
// position `from` to the one of the last; returns their sum.
inline float soften(float *scores, int64_t first, int64_t last, int64_t from, bf16 *weights) {
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    const int64_t stop = (last + LANES - 1) / LANES * LANES;
    std::fill(scores + from, scores + first, -INFINITY);
    std::fill(scores + last, scores + stop, -INFINITY);
    __m512 most = lowest, total = _mm512_setzero_ps();
    for (int64_t at = from; at < stop; at += LANES)
        most = _mm512_max_ps(most, _mm512_loadu_ps(scores + at));
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    for (int64_t at = from; at < stop; at += LANES) {
        const __m512 score = _mm512_loadu_ps(scores + at);
        const __mmask16 seen = _mm512_cmp_ps_mask(score, lowest, _CMP_NEQ_OQ);
        const __m512 weight = _mm512_maskz_mov_ps(seen, exponential(_mm512_sub_ps(score, largest)));
        total = _mm512_add_ps(total, weight);
        store(weights + at, weight);
    }
    return _mm512_reduce_add_ps(total);
}

// What one thread needs for one attention item.
struct AttentionScratch {
    bf16 *queries, *packed, *weights;
    float *scores, *mixed, *sums;

    static size_t bytes(int64_t queries, int64_t width, int64_t head_dim) {
        return Arena::padded<bf16>(queries * head_dim) + Arena::padded<bf16>(LANES * head_dim) +
               Arena::padded<bf16>(queries * width) + Arena::padded<float>(queries * width) +
               Arena::padded<float>(queries * head_dim) + Arena::padded<float>(queries);
    }
    void take(Arena &arena, int64_t count, int64_t width, int64_t head_dim) {
        queries = arena.take<bf16>(count * head_dim);
        packed = arena.take<bf16>(LANES * head_dim);
        weights = arena.take<bf16>(count * width);
        scores = arena.take<float>(count * width);
        mixed = arena.take<float>(count * head_dim);
        sums = arena.take<float>(count);
    }
};

// Query heads `heads` (of one key head) of nodes `nodes` of one sequence.
struct Item {
    int64_t sequence, kv_head;
    Range nodes, heads;
};

// How queries are cut into items: enough of them for all threads, few packings of keys.
struct Cut {
    int64_t node_chunks, head_chunks, per_chunk;

    Cut(const Model &m, const Pass &p, int threads) {
        const int64_t group = m.heads / m.kv_heads;
        per_chunk = std::max<int64_t>(1, CHUNK / group);
        node_chunks = (p.nodes + per_chunk - 1) / per_chunk;
        const int64_t items = p.batch * m.kv_heads * node_chunks;
        head_chunks = 1;
        while (head_chunks < group && items < 4 * threads && items * head_chunks % threads)
            ++head_chunks;
    }
    int64_t items(const Model &m, const Pass &p) const {
        return p.batch * m.kv_heads * node_chunks * head_chunks;
    }
    int64_t queries(const Model &m) const { return per_chunk * (m.heads / m.kv_heads); }
    Item at(int64_t index, const Model &m, const Pass &p) const {
        const int64_t group = m.heads / m.kv_heads;
        const int64_t head = index % head_chunks, rest = index / head_chunks;
        const int64_t chunk = rest % node_chunks, pair = rest / node_chunks;
        return {pair / m.kv_heads, pair % m.kv_heads, part(p.nodes, chunk, node_chunks),
                part(group, head, head_chunks)};
    }
};

// Calls `use(first position, rows of 16 positions)` for the tiles of `node` behind `shared`.
template <class Use>
inline void own_tiles(const Pass &p, int64_t row, int64_t length, int64_t shared, const bf16 *base,
                      int64_t head_dim, const Use &use) {
    const int64_t last = length + p.counts[row];
    const int32_t *extra = p.extra + row * p.max_extra;
    for (int64_t at = shared; at < last; at += LANES) {
        const bf16 *rows[LANES];
        for (int i = 0; i < LANES; ++i) {
            const int64_t position = at + i;
            const int64_t from = position < length ? position
                                 : position < last ? extra[position - length]
                                                   : 0;  // gets weight 0, must be finite
            rows[i] = base + from * head_dim;
        }
        use(at, rows);
    }
}

// Attention of one item from rotated `qkv` rows into `mixed` rows [rows, heads * head_dim].
void attend(const Model &m, const Pass &p, const Attention &a, int64_t slot, const Item &item,
            const bf16 *qkv, int64_t width, const AttentionScratch &s, bf16 *mixed) {
    const int64_t d = m.head_dim, group = m.heads / m.kv_heads;
    const int64_t per_node = item.heads.last - item.heads.first;
    const int64_t nodes = item.nodes.last - item.nodes.first;
    const int64_t count = nodes * per_node;
    const int64_t first_row = item.sequence * p.nodes + item.nodes.first;
    const int64_t first_head = item.kv_head * group + item.heads.first;
    const int64_t offset =
        slot * p.slot_stride + item.sequence * p.batch_stride + item.kv_head * p.head_stride;
    const bf16 *keys = p.keys + offset, *values = p.values + offset;
    const int64_t length = p.lengths[item.sequence], shared = length / LANES * LANES;

    auto first_seen = [&](int64_t row) {
        const int64_t last = length + p.counts[row];
        return a.window > 0 ? std::max<int64_t>(0, last - a.window) : 0;
    };
    int64_t from = shared;
    for (int64_t n = 0; n < nodes; ++n) {
        const int64_t row = first_row + n;
        if (p.counts[row]) from = std::min(from, first_seen(row) / LANES * LANES);
        std::memcpy(s.queries + n * per_node * d,
                    qkv + row * (m.heads + 2 * m.kv_heads) * d + first_head * d,
                    per_node * d * sizeof(bf16));
    }
    std::memset(s.mixed, 0, count * d * sizeof(float));

    auto shared_rows = [&](const bf16 *base, int64_t at, const bf16 *(&rows)[LANES]) {
        for (int i = 0; i < LANES; ++i) rows[i] = base + (at + i) * d;
    };
    const bf16 *rows[LANES];
    for (int64_t at = from; at < shared; at += LANES) {
        shared_rows(keys, at, rows);
        pack_keys(rows, d, s.packed);
        score_tile(s.queries, count, d, s.packed, m.scale, s.scores + at, width);
    }
    for (int64_t n = 0; n < nodes; ++n) {
        const int64_t row = first_row + n, query = n * per_node;
        if (!p.counts[row]) continue;
        own_tiles(p, row, length, shared, keys, d, [&](int64_t at, const bf16 *const(&own)[LANES]) {
            pack_keys(own, d, s.packed);
            score_tile(s.queries + query * d, per_node, d, s.packed, m.scale,
                       s.scores + query * width + at, width);
        });
        const int64_t last = length + p.counts[row];
        for (int64_t q = query; q < query + per_node; ++q)
            s.sums[q] =
                soften(s.scores + q * width, first_seen(row), last, from, s.weights + q * width);
    }
    for (int64_t at = from; at < shared; at += LANES) {
        shared_rows(values, at, rows);
        pack_values(rows, d, s.packed);
        mix_tile(s.weights + at, width, count, d, s.packed, s.mixed);
    }
    for (int64_t n = 0; n < nodes; ++n) {
        const int64_t row = first_row + n, query = n * per_node;
        bf16 *to = mixed + row * m.heads * d + first_head * d;
        if (!p.counts[row]) {
            std::memset(to, 0, per_node * d * sizeof(bf16));
            continue;
        }
        own_tiles(p, row, length, shared, values, d, [&](int64_t at, const bf16 *const(&own)[LANES]) {
            pack_values(own, d, s.packed);
            mix_tile(s.weights + query * width + at, width, per_node, d, s.packed,
                     s.mixed + query * d);
        });
        for (int64_t q = 0; q < per_node; ++q) {
            const __m512 sum = _mm512_set1_ps(s.sums[query + q]);
            for (int64_t i = 0; i < d; i += LANES)
                store(to + q * d + i,
                      _mm512_div_ps(_mm512_loadu_ps(s.mixed + (query + q) * d + i), sum));
        }
    }
}

}  // namespace
