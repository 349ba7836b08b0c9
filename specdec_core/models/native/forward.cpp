// Forward pass of a decoder over a few rows, for processors with AVX-512 bfloat16 instructions.
//
// Every output depends on its own row alone and is summed in the same order whatever else is in
// the pass: a token scored in a tree gets bit for bit the logits it gets when it is scored alone.
// Matrix products run over the input dimension in order with one accumulator per output;
// attention runs over positions, not cache rows, so it does not matter where a tree keeps a node.
// Values are rounded to bfloat16 where a module-by-module forward would round them.

#include <omp.h>

#include <algorithm>

#include "attention.hpp"
#include "products.hpp"
#include "rows.hpp"

namespace {

constexpr int HEAD_GROUPS = 16;  // groups of the head that a thread takes at a time

thread_local Arena shared_arena, private_arena;

// Buffers all threads of a pass write their shares of.
struct Shared {
    bf16 *qkv, *mixed, *features, *delta;
};

// Makes room for what a thread keeps on its own; false where there is none.
bool reserve_own(const Model &m, const Pass &p, const Cut &cut, int64_t width) {
    const int64_t rows = p.batch * p.nodes, h = m.hidden;
    return private_arena.reserve(2 * Arena::padded<bf16>(rows * h) + Arena::padded<bf16>(h) +
                                 AttentionScratch::bytes(cut.queries(m), width, m.head_dim));
}

// One thread's walk through all blocks, after `reserve_own`. The residual stream is kept by every
// thread on its own.
void walk(const Model &m, const Block *blocks, int64_t num_blocks, const Pass &p, const Cut &cut,
          const Shared &shared, int64_t width, int thread, int threads) {
    const int64_t rows = p.batch * p.nodes, h = m.hidden, queries = cut.queries(m);
    bf16 *x = private_arena.take<bf16>(rows * h), *normed = private_arena.take<bf16>(rows * h);
    bf16 *row_scratch = private_arena.take<bf16>(h);
    AttentionScratch scratch;
    scratch.take(private_arena, queries, width, m.head_dim);
    std::memcpy(x, p.embedded, rows * h * sizeof(bf16));

    const auto share = [&](const Weight &w) { return part(num_groups(w), thread, threads); };
    bool has_delta = false;
    const float *post_norm = nullptr;
    const auto hand_out = [&](int64_t tap, const bf16 *hidden) {
        if (p.taps[tap]) std::memcpy(p.taps[tap], hidden, rows * h * sizeof(bf16));
    };
    int64_t tap = p.taps && thread == 0 ? 0 : num_blocks + 1;
    // In front of the next half of `block`; the stream there is that of skipped blocks before it.
    const auto add_and_norm = [&](const float *norm, int64_t block) {
        for (int64_t row = 0; row < rows; ++row) {
            bf16 *at = x + row * h;
            if (has_delta)
                add_row(at, shared.delta + row * h, post_norm, h, m.eps, row_scratch);
            rms_norm(at, norm, h, m.eps, normed + row * h);
        }
        for (; tap <= block; ++tap) hand_out(tap, x);
    };
    for (int64_t i = 0; i < num_blocks; ++i) {
        if (const Attention *a = blocks[i].attention) {
            add_and_norm(a->norm, i);
            linear(normed, rows, a->qkv, share(a->qkv), shared.qkv);
#pragma omp barrier
            place(m, p, *a, blocks[i].slot, shared.qkv, thread, threads);
#pragma omp barrier
#pragma omp for schedule(dynamic)
            for (int64_t item = 0; item < cut.items(m, p); ++item)
                attend(m, p, *a, blocks[i].slot, cut.at(item, m, p), shared.qkv, width, scratch,
                       shared.mixed);
            linear(shared.mixed, rows, a->out, share(a->out), shared.delta);
#pragma omp barrier
            has_delta = true;
            post_norm = a->post_norm;
        }
        if (const Mlp *mlp = blocks[i].mlp) {
            add_and_norm(mlp->norm, i);
            gated(normed, rows, mlp->gate_up, share(mlp->gate_up), m.is_silu, shared.features);
#pragma omp barrier
            linear(shared.features, rows, mlp->down, share(mlp->down), shared.delta);
#pragma omp barrier
            has_delta = true;
            post_norm = mlp->post_norm;
        }
    }
    add_and_norm(m.final_norm, num_blocks);
    if (p.taps && thread == 0) hand_out(num_blocks + 1, normed);
    // The largest product by far: who is ahead takes more of it.
#pragma omp for schedule(dynamic) nowait
    for (int64_t group = 0; group < num_groups(m.head); group += HEAD_GROUPS) {
        const int64_t last = std::min<int64_t>(group + HEAD_GROUPS, num_groups(m.head));
        linear(normed, rows, m.head, {group, last}, p.logits);
    }
}

}  // namespace

extern "C" {

// out[rows, outputs] = x[rows, inputs] . weight + bias
void specdec_linear(const bf16 *x, int64_t rows, const Weight *w, bf16 *out, int threads) {
#pragma omp parallel num_threads(threads)
    linear(x, rows, *w, part(num_groups(*w), omp_get_thread_num(), omp_get_num_threads()), out);
}

// out[rows, features] = activation(gate) * up
void specdec_gated(const bf16 *x, int64_t rows, const Weight *w, int is_silu, bf16 *out,
                   int threads) {
#pragma omp parallel num_threads(threads)
    gated(x, rows, *w, part(num_groups(*w), omp_get_thread_num(), omp_get_num_threads()), is_silu,
          out);
}

// Sum of `size` words, every one read once: how fast can memory be read at best?
int64_t specdec_read(const int64_t *words, int64_t size, int threads) {
    int64_t sum = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : sum)
    for (int64_t i = 0; i < size; ++i) sum += words[i];
    return sum;
}

// Returns 0, or 1 where memory for the pass cannot be had and nothing was computed.
int specdec_forward(const Model *m, const Block *blocks, int64_t num_blocks, const Pass *p,
                    int threads) {
    const int64_t rows = p->batch * p->nodes;
    const int64_t qkv_width = (m->heads + 2 * m->kv_heads) * m->head_dim;
    const int64_t mixed_width = m->heads * m->head_dim;
    int64_t last = 0;
    for (int64_t row = 0; row < rows; ++row)
        last = std::max<int64_t>(last, p->lengths[row / p->nodes] + p->counts[row]);
    const int64_t width = (last + LANES - 1) / LANES * LANES;
    const Cut cut(*m, *p, threads);
    if (!shared_arena.reserve(Arena::padded<bf16>(rows * qkv_width) +
                              Arena::padded<bf16>(rows * m->hidden) +
                              Arena::padded<bf16>(rows * mixed_width) +
                              Arena::padded<bf16>(rows * m->features)))
        return 1;
    Shared shared;
    shared.qkv = shared_arena.take<bf16>(rows * qkv_width);
    shared.mixed = shared_arena.take<bf16>(rows * mixed_width);
    shared.features = shared_arena.take<bf16>(rows * m->features);
    shared.delta = shared_arena.take<bf16>(rows * m->hidden);
    int failed = 0;
#pragma omp parallel num_threads(threads)
    {
        if (!reserve_own(*m, *p, cut, width)) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp barrier
        if (!failed)
            walk(*m, blocks, num_blocks, *p, cut, shared, width, omp_get_thread_num(),
                 omp_get_num_threads());
    }
    return failed;
}

}  // extern "C"
