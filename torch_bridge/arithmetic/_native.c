/* The formulas of `kernels.py` in one pass over memory; see `native.py`.

   A matrix of `rows` by `n` values, one step per row. Bounds are whole numbers of at most 2^21, so
   that clamping before rounding is the same as after it, and the sum of a value and 1.5 * 2^23 has
   no bits behind the point: adding and subtracting it rounds half to even, and never to -0.
   Comparisons are written so that NaN stays NaN. */

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDEST
#endif

#define ROUNDER 12582912.0f
#define BLOCK 4096 /* as many terms are added in float; what they give, in double */

static inline float code_of(float v, float low, float high)
{
    v = v < low ? low : v;
    v = v > high ? high : v;
    return (v + ROUNDER) - ROUNDER;
}

WIDEST void onnxq_forward(const float *restrict x, float *restrict y, const float *restrict steps,
                          size_t rows, size_t n, float low, float high)
{
    for (size_t row = 0; row < rows; ++row, x += n, y += n) {
        const float step = steps[row];
        for (size_t i = 0; i < n; ++i)
            y[i] = code_of(x[i] / step, low, high) * step;
    }
}

/* dx may be dy. */
WIDEST void onnxq_lsq(const float *dy, const float *restrict x, float *dx,
                      const float *restrict steps, double *restrict sums, size_t rows, size_t n,
                      float low, float high)
{
    for (size_t row = 0; row < rows; ++row, x += n, dy += n, dx += n) {
        const float step = steps[row];
        double whole = 0.0;
        for (size_t start = 0; start < n; start += BLOCK) {
            const size_t end = n - start < BLOCK ? n : start + BLOCK;
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (size_t i = start; i < end; ++i) {
                const float v = x[i] / step, code = code_of(v, low, high), slope = dy[i];
                const int inside = (v > low) & (v < high);
                sum += slope * (inside ? code - v : code);
                dx[i] = inside ? slope : 0.0f;
            }
            whole += sum;
        }
        sums[row] = whole;
    }
}
