/* OpenCL 1.2: what the kernels below are written in. REAL64 chooses double. */
#if REAL64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
typedef double2 real2;
#else
typedef float real;
typedef float2 real2;
#endif
#define DEVICE static inline
#define PART static __attribute__((noinline))
#define BOTH DEVICE
#define BOTH_PART PART
#define KERNEL __kernel void
#define THREADS(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#define TEAM(n, many) THREADS(n)
#define GLOBAL __global
#define LOCAL __local
#define TABLE __constant
#define FROM __constant
#define ARENA(name, n) __local real name[n] __attribute__((aligned(16)))
#define TID ((int)get_local_id(0))
#define NTHR ((int)get_local_size(0))
#define BID ((int)get_group_id(0))
#define NBLK ((int)get_num_groups(0))
#define SYNC barrier(CLK_LOCAL_MEM_FENCE);
/* for global memory too */
#define SYNC_ALL barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#define FIRST(thread, team) ((TID - (thread)) & ((team) - 1))
#define MEET(team) SYNC
#define UNROLL
#define ROLLED
#define FMA fma
#define SINCOS(x, s, c) (*(s) = sincos((x), (c)))
#define SQRT sqrt
#define ATAN2 atan2
DEVICE real ld(LOCAL const real *s, int a) { return s[a]; }
DEVICE void st(LOCAL real *s, int a, real x) { s[a] = x; }
DEVICE void ld2(LOCAL const real *s, int a, real *x) {
  const real2 t = *(LOCAL const real2 *)(s + a);
  x[0] = t.x;
  x[1] = t.y;
}
DEVICE void st2(LOCAL real *s, int a, const real *x) { *(LOCAL real2 *)(s + a) = (real2)(x[0], x[1]); }
DEVICE void entry4(TABLE const unsigned short *table, int k, int *e) {
  const ushort4 t = vload4(k, table);
  e[0] = t.x;
  e[1] = t.y;
  e[2] = t.z;
  e[3] = t.w;
}
#define TABLE_OF_GROUPS __constant unsigned
#define TABLE_OF_ENTRIES __constant unsigned short
