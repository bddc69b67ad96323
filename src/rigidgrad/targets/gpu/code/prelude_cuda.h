/* CUDA: what the kernels below are written in. A file that runs them elsewhere defines RIGIDGRAD_OWN_PRELUDE and brings all of this itself. */
#ifndef RIGIDGRAD_OWN_PRELUDE
#define DEVICE __device__ __forceinline__
#define PART static __device__ __noinline__
/* also for the host */
#define BOTH __host__ __device__ __forceinline__
#define BOTH_PART static __host__ __device__ __noinline__
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#endif
/* at least one block a processor: the compiler then takes the registers it needs instead of spilling a few */
#define THREADS(n) __launch_bounds__(n, 1)
/* for a block a state: as many blocks a processor as make `many` threads in float, 512 in double, but no more than every processor takes */
#define TEAM(n, many) __launch_bounds__(n, n < 64 ? 16 : (sizeof(real) == 4 ? many : 512) / n)
#define GLOBAL
#define LOCAL
#define TABLE static __device__ const
#define FROM
/* 48 KB of shared memory are there for everyone; beyond, the host asks for it at each launch */
template <class real, int n, bool fits = (n * sizeof(real) <= 48 * 1024)> struct rigidgrad_arena {
  static __device__ __forceinline__ real *get() {
    __shared__ __align__(16) real numbers[n];
    return numbers;
  }
};
template <class real, int n> struct rigidgrad_arena<real, n, false> {
  static __device__ __forceinline__ real *get() {
    extern __shared__ __align__(16) unsigned char rigidgrad_dynamic[];
    return (real *)rigidgrad_dynamic;
  }
};
#define ARENA(name, n) real *name = rigidgrad_arena<real, n>::get()
#define TID ((int)threadIdx.x)
#define NTHR ((int)blockDim.x)
#define BID ((int)blockIdx.x)
#define NBLK ((int)gridDim.x)
#define SYNC __syncthreads();
#define SYNC_ALL __syncthreads();
#define FIRST(thread, team) ((TID - (thread)) & ((team) - 1))
/* a barrier of the threads that share a state, where there may be one warp alone */
#define MEET(team) { if (team == 32) __syncwarp(); else __syncthreads(); }
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
BOTH float rigidgrad_fma(float a, float b, float c) { return fmaf(a, b, c); }
BOTH double rigidgrad_fma(double a, double b, double c) { return fma(a, b, c); }
BOTH void rigidgrad_sincos(float x, float *s, float *c) { sincosf(x, s, c); }
BOTH void rigidgrad_sincos(double x, double *s, double *c) { sincos(x, s, c); }
BOTH float rigidgrad_sqrt(float x) { return sqrtf(x); }
BOTH double rigidgrad_sqrt(double x) { return sqrt(x); }
BOTH float rigidgrad_atan2(float y, float x) { return atan2f(y, x); }
BOTH double rigidgrad_atan2(double y, double x) { return atan2(y, x); }
template <class real> struct rigidgrad_pair;
template <> struct rigidgrad_pair<float> { typedef float2 type; };
template <> struct rigidgrad_pair<double> { typedef double2 type; };
#define FMA rigidgrad_fma
#define SINCOS rigidgrad_sincos
#define SQRT rigidgrad_sqrt
#define ATAN2 rigidgrad_atan2
/* Shared memory is read and written by these alone. Vectors begin at even places, so they move two numbers at a time: at distances of six numbers, that keeps
   the banks of neighbouring threads apart. */
template <class real> DEVICE real ld(const real *s, int a) { return s[a]; }
template <class real> DEVICE void st(real *s, int a, real x) { s[a] = x; }
template <class real> DEVICE void ld2(const real *s, int a, real *x) {
  const typename rigidgrad_pair<real>::type t = *(const typename rigidgrad_pair<real>::type *)(s + a);
  x[0] = t.x;
  x[1] = t.y;
}
template <class real> DEVICE void st2(real *s, int a, const real *x) {
  typename rigidgrad_pair<real>::type t;
  t.x = x[0];
  t.y = x[1];
  *(typename rigidgrad_pair<real>::type *)(s + a) = t;
}
DEVICE void entry4(const unsigned short *table, int k, int *e) {
  const ushort4 t = ((const ushort4 *)table)[k];
  e[0] = t.x;
  e[1] = t.y;
  e[2] = t.z;
  e[3] = t.w;
}
/* read by all threads of a warp at the same place */
#define TABLE_OF_GROUPS static __constant__ const unsigned
#define TABLE_OF_ENTRIES static __device__ const __align__(8) unsigned short
#endif
