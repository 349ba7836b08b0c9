// Registers of 16 float32 values, bfloat16 rows in memory, and the buffers of a pass.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

typedef uint16_t bf16;

namespace {

constexpr int LANES = 16;  // float32 values of one register, and positions of one tile
constexpr int GROUP = 32;  // bfloat16 values of one register, and outputs of a weight group

inline __m512 widen(__m256i values) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

inline __m512 load(const bf16 *from) { return widen(_mm256_loadu_si256((const __m256i *)from)); }

inline __m256i narrow(__m512 values) { return (__m256i)_mm512_cvtneps_pbh(values); }

inline void store(bf16 *to, __m512 values) { _mm256_storeu_si256((__m256i *)to, narrow(values)); }

// A pair of inputs for all lanes.
inline __m512bh both(const bf16 *pair) {
    int32_t bits;
    std::memcpy(&bits, pair, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

inline __m512 rounded(__m512 values) { return widen(narrow(values)); }

// Cephes' polynomial for e^x, within two units in the last place.
inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(88.3f)), _mm512_set1_ps(-104.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                    5.0000001201e-1f})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

inline __m512 silu(__m512 x) {
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(x, _mm512_add_ps(one, exponential(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

// x / 2 * (1 + tanh(y)) = x / (1 + e^(-2y)).
inline __m512 gelu_tanh(__m512 x) {
    const __m512 cube = _mm512_mul_ps(_mm512_mul_ps(x, x), x);
    const __m512 y = _mm512_mul_ps(_mm512_fmadd_ps(cube, _mm512_set1_ps(0.044715f), x),
                                   _mm512_set1_ps(0.7978845608f));
    const __m512 down = exponential(_mm512_mul_ps(y, _mm512_set1_ps(-2.0f)));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), down));
}

// A buffer that only grows, so that a pass allocates nothing once it has seen its largest size.
class Arena {
  public:
    ~Arena() { std::free(data_); }
    // Returns whether there is room; what was taken before is gone.
    bool reserve(size_t bytes) {
        used_ = 0;
        if (bytes <= size_) return true;
        std::free(data_);
        size_ = (bytes + 4095) & ~size_t(4095);
        data_ = static_cast<char *>(std::aligned_alloc(4096, size_));
        if (data_ == nullptr) size_ = 0;
        return data_ != nullptr;
    }
    template <class T> T *take(size_t count) {
        T *start = reinterpret_cast<T *>(data_ + used_);
        used_ += padded<T>(count);
        return start;
    }
    template <class T> static size_t padded(size_t count) {
        return (count * sizeof(T) + 127) & ~size_t(127);
    }

  private:
    char *data_ = nullptr;
    size_t size_ = 0, used_ = 0;
};

struct Range {
    int64_t first, last;
};

// Part `index` of `parts` nearly equal runs of 0 .. size-1.
inline Range part(int64_t size, int index, int parts) {
    return {size * index / parts, size * (index + 1) / parts};
}

}  // namespace
