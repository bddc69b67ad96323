// Multiply-adds per second of one core: independent chains in registers, enough of them to hide the latency.
#include <stdint.h>

#define CHAINS 12

#define PEAK(name, scalar, bytes)                                                    \
  typedef scalar name##_vector __attribute__((vector_size(bytes)));                  \
  double name(long rounds) {                                                         \
    name##_vector sum[CHAINS], factor, term;                                         \
    for (int lane = 0; lane < (int)(bytes / sizeof(scalar)); ++lane) {               \
      factor[lane] = (scalar)0.999;                                                  \
      term[lane] = (scalar)1e-3;                                                     \
      for (int c = 0; c < CHAINS; ++c) sum[c][lane] = (scalar)(c + lane);            \
    }                                                                                \
    for (long r = 0; r < rounds; ++r) {                                              \
      _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; ++c) sum[c] = sum[c] * factor + term; \
    }                                                                                \
    double total = 0; /* used, so that nothing is removed */                         \
    for (int c = 0; c < CHAINS; ++c) total += sum[c][0];                             \
    return total;                                                                    \
  }                                                                                  \
  long name##_flops(void) { return 2 * CHAINS * (long)(bytes / sizeof(scalar)); }

PEAK(float64_16, double, 16)
PEAK(float32_16, float, 16)
PEAK(float64_32, double, 32)
PEAK(float32_32, float, 32)
PEAK(float64_64, double, 64)
PEAK(float32_64, float, 64)
