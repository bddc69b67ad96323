/* A vector of four doubles for the backward pass, whose lanes are columns of matrices. With GCC's
 * vectors where the processor has some of that length; otherwise a structure, which compilers turn
 * into what there is. The operations are the same, and so are the results. */
#if defined(__GNUC__)
#define OWN static inline __attribute__((unused))
#define APART static __attribute__((unused, noinline))
#else
#define OWN static inline
#define APART static
#endif

#if defined(__FMA__)
#include <immintrin.h>
#endif
#if defined(__GNUC__) && (defined(__AVX__) || defined(__aarch64__))
typedef double vec __attribute__((vector_size(32)));
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define VEC_SHUFFLES 1 /* gcc 12 makes slow code of lanes that are moved one by one */
#endif
#endif
#define VEC_LANE(v, k) ((v)[k])
#define VEC_EACH(y, expression) int k; for (k = 0; k < 4; ++k) y[k] = (expression); return y
OWN vec vec_add(vec a, vec b) { return a + b; }
OWN vec vec_sub(vec a, vec b) { return a - b; }
OWN vec vec_mul(vec a, vec b) { return a * b; }
OWN vec vec_div(vec a, vec b) { return a / b; }
OWN vec vec_neg(vec a) { return -a; }
OWN vec vec_splat(double x) { const vec y = {x, x, x, x}; return y; }
OWN vec vec_fma(vec a, vec b, vec c)
{
#if defined(__FMA__)
    return (vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    vec y = a;
    VEC_EACH(y, fma(a[k], b[k], c[k]));
#endif
}
#else
typedef struct { double x[4]; } vec;
#define VEC_LANE(v, k) ((v).x[k])
#define VEC_EACH(y, expression) int k; for (k = 0; k < 4; ++k) y.x[k] = (expression); return y
OWN vec vec_add(vec a, vec b) { vec y = a; VEC_EACH(y, a.x[k] + b.x[k]); }
OWN vec vec_sub(vec a, vec b) { vec y = a; VEC_EACH(y, a.x[k] - b.x[k]); }
OWN vec vec_mul(vec a, vec b) { vec y = a; VEC_EACH(y, a.x[k] * b.x[k]); }
OWN vec vec_div(vec a, vec b) { vec y = a; VEC_EACH(y, a.x[k] / b.x[k]); }
OWN vec vec_neg(vec a) { vec y = a; VEC_EACH(y, -a.x[k]); }
OWN vec vec_splat(double x) { const vec y = {{x, x, x, x}}; return y; }
OWN vec vec_fma(vec a, vec b, vec c) { vec y = a; VEC_EACH(y, fma(a.x[k], b.x[k], c.x[k])); }
#endif
OWN vec vec_load(const double *p) { vec y; memcpy(&y, p, sizeof y); return y; }
OWN void vec_store(double *p, vec a) { memcpy(p, &a, sizeof a); }
OWN double vec_at(vec a, int lane) { return VEC_LANE(a, lane); }
OWN vec vec_with(vec a, int lane, double x) { VEC_LANE(a, lane) = x; return a; }
#if defined(VEC_SHUFFLES)
#define vec_spread(a, lane) __builtin_shufflevector((a), (a), lane, lane, lane, lane)
#define vec_shuffle(a, b, i, j, l, m) __builtin_shufflevector((a), (b), i, j, l, m)
#define vec_blend(a, b, bits) \
    __builtin_shufflevector((a), (b), (bits) & 1 ? 0 : 4, (bits) & 2 ? 1 : 5, (bits) & 4 ? 2 : 6, \
                            (bits) & 8 ? 3 : 7)
#else
OWN vec vec_spread(vec a, int lane) { return vec_splat(VEC_LANE(a, lane)); }
OWN vec vec_blend(vec a, vec b, int bits)
{
    vec y = a;
    VEC_EACH(y, (bits >> k) & 1 ? VEC_LANE(a, k) : VEC_LANE(b, k));
}
OWN vec vec_shuffle(vec a, vec b, int i, int j, int l, int m)
{
    const int from[4] = {i, j, l, m};
    vec y = a;
    VEC_EACH(y, from[k] < 4 ? VEC_LANE(a, from[k]) : VEC_LANE(b, from[k] - 4));
}
#endif
