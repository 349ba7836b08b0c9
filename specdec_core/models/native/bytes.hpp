// Weights of 8 bits: looked up as bfloat16, which holds them exactly, and scaled after the sum.

#pragma once

#include <algorithm>

#include "structures.hpp"

namespace {

constexpr int64_t SCALED_PAIRS = 32;  // pairs of inputs that share a scale
constexpr int64_t PAIR_BYTES = 64;    // one pair of inputs of a weight group
constexpr int64_t SCALE_BYTES = GROUP * sizeof(float);

// The bytes of one weight group of `pairs` pairs of inputs.
inline int64_t byte_size(int64_t pairs) {
    return pairs * PAIR_BYTES + (pairs + SCALED_PAIRS - 1) / SCALED_PAIRS * SCALE_BYTES;
}

#ifdef __AVX512VBMI__

// The two bytes of the bfloat16 numbers 0 .. 127.
struct WholeNumbers {
    alignas(64) uint8_t low[128] = {}, high[128] = {};

    constexpr WholeNumbers() {
        for (int value = 1, exponent = 0; value < 128; ++value) {
            if (value >> (exponent + 1)) ++exponent;
            const int bits = (127 + exponent) << 7 | ((value << (7 - exponent)) & 127);
            low[value] = bits & 255;
            high[value] = bits >> 8;
        }
    }
};
constexpr WholeNumbers whole_numbers;

// Both blocks of one pair of inputs; the lookup leaves the sign out.
inline void widen(__m512i bytes, __m512bh (&blocks)[2]) {
    const auto look_up = [&](const uint8_t *table) {
        return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes,
                                        _mm512_load_si512(table + 64));
    };
    const __m512i low = look_up(whole_numbers.low), signs = _mm512_set1_epi8(-128);
    const __m512i high = _mm512_or_si512(look_up(whole_numbers.high),
                                         _mm512_and_si512(bytes, signs));
    blocks[0] = (__m512bh)_mm512_unpacklo_epi8(low, high);
    blocks[1] = (__m512bh)_mm512_unpackhi_epi8(low, high);
}

#else

// One block from 16-bit words that hold its bytes.
inline __m512bh widen_words(__m512i words) {
    const __m512i sizes = _mm512_and_si512(words, _mm512_set1_epi16(127));
    const __m512i low = (__m512i)_mm512_cvtepi32_ps(
        _mm512_and_si512(sizes, _mm512_set1_epi32(127)));
    const __m512i high = (__m512i)_mm512_cvtepi32_ps(_mm512_srli_epi32(sizes, 16));
    const __m512i signs = _mm512_slli_epi16(_mm512_srli_epi16(words, 7), 15);
    return (__m512bh)_mm512_or_si512(_mm512_or_si512(_mm512_srli_epi32(low, 16), high), signs);
}

inline void widen(__m512i bytes, __m512bh (&blocks)[2]) {
    blocks[0] = widen_words(_mm512_unpacklo_epi8(bytes, _mm512_setzero_si512()));
    blocks[1] = widen_words(_mm512_unpackhi_epi8(bytes, _mm512_setzero_si512()));
}

#endif

// acc[m][j] += x[m] . block j of one weight group, run of a shared scale by run. Fetches the same
// stretch from `ahead` on the way if it is not null.
template <int M>
inline void byte_tile(const bf16 *x, int64_t stride, const char *w, int64_t pairs,
                      __m512 (&acc)[M][2], const char *ahead = nullptr) {
    for (int64_t first = 0; first < pairs; first += SCALED_PAIRS) {
        const int64_t last = std::min(pairs, first + SCALED_PAIRS);
        __m512 sum[M][2];
        for (auto &pair : sum) pair[0] = pair[1] = _mm512_setzero_ps();
        for (int64_t k = first; k < last; ++k, w += PAIR_BYTES) {
            __m512bh weight[2];
            widen(_mm512_loadu_si512(w), weight);
            if (ahead) {
                _mm_prefetch(ahead, _MM_HINT_T1);
                ahead += PAIR_BYTES;
            }
            for (int m = 0; m < M; ++m) {
                const __m512bh input = both(x + m * stride + 2 * k);
                for (int j = 0; j < 2; ++j) sum[m][j] = _mm512_dpbf16_ps(sum[m][j], weight[j], input);
            }
        }
        for (int j = 0; j < 2; ++j, w += SCALE_BYTES / 2) {
            const __m512 scales = _mm512_loadu_ps(w);
            for (int m = 0; m < M; ++m) acc[m][j] = _mm512_fmadd_ps(sum[m][j], scales, acc[m][j]);
        }
        if (ahead) ahead += SCALE_BYTES;
    }
}

}  // namespace
