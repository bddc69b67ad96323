/* Conjugate gradients (Plancher 2022, Algorithm 5) with a block of threads a knot, by the kernels of `KnotGradients` in `kernels/pcg.py`. Matrices of a knot, and the vectors of
   three knots, are in shared memory; blocks exchange two vectors and two numbers a knot in each iteration. Kernels are in files of their own: `solver_pcg_together.h`, one launch
   whose blocks wait for each other, and `solver_pcg_launches.h`, a launch for each half of an iteration. Vectors that are exchanged have a knot of
   zeros before and behind each problem. TAKE and GIVE are for numbers of other blocks. */
#ifndef TAKE
#define TAKE(x, i) (x)[i]
#define GIVE(x, i, y) ((x)[i] = (y))
#endif
#define NEIGHBOURS (3 * ND)

DEVICE void bring(LOCAL real *s, GLOBAL const real *x, int count, int there) {
  ROLLED
  for (int t = TID; t < count; t += NTHR) st(s, t, there ? x[t] : (real)0);
}
/* what three knots, and all, have handed on */
DEVICE void bring_handed_on(LOCAL real *s, GLOBAL const real *vectors, GLOBAL const real *sums, int problem, int k) {
  const size_t before = (size_t)problem * (KNOTS + 2) + k;
  for (int t = TID; t < NEIGHBOURS; t += NTHR) st(s, AT_HALO + t, TAKE(vectors, before * ND + t));
  for (int t = TID; t < KNOTS; t += NTHR) st(s, AT_SUMS + t, TAKE(sums, (size_t)problem * KNOTS + t));
}
DEVICE void hand_on(LOCAL const real *s, GLOBAL real *vectors, GLOBAL real *sums, int problem, int k) {
  const size_t own = (size_t)problem * (KNOTS + 2) + k + 1;
  for (int t = TID; t < ND; t += NTHR) GIVE(vectors, own * ND + t, ld(s, AT_FOUND + t));
  if (TID == 0) GIVE(sums, (size_t)problem * KNOTS + k, ld(s, AT_PART));
}
DEVICE void bring_dynamics(LOCAL real *s, GLOBAL const real *F, GLOBAL const real *W, size_t row, int k) {
  bring(s + AT_F, F + (row - 1) * ND * NZ, ND * NZ, k > 0);
  bring(s + AT_F + ND * NZ, F + row * ND * NZ, ND * NZ, k < KNOTS - 1);
  bring(s + AT_W, W + row * (NZ + ND) * ND, (NZ + ND) * ND, 1);
}
DEVICE void bring_preconditioner(LOCAL real *s, GLOBAL const real *phi, size_t row) { bring(s + AT_PHI, phi + row * NEIGHBOURS * ND, NEIGHBOURS * ND, 1); }
/* r is gamma, of three knots, and all else zero */
DEVICE void begin_knot(LOCAL real *s, GLOBAL const real *gamma, size_t row, int k) {
  for (int t = TID; t < NEIGHBOURS; t += NTHR) {
    const int knot = k - 1 + t / ND;
    st(s, AT_P + t, (real)0);
    st(s, AT_R + t, knot >= 0 && knot < KNOTS ? gamma[row * ND + t - ND] : (real)0);
  }
  for (int t = TID; t < ND; t += NTHR) st(s, AT_DELTA + t, (real)0);
  for (int t = TID; t < PCG_SCALARS; t += NTHR) st(s, AT_NUMBERS + t, (real)0);
}
/* the multipliers, and the account of the problem */
DEVICE void end_knot(LOCAL const real *s, GLOBAL real *control, GLOBAL real *lambda, GLOBAL real *delta, size_t row, int problem, int k) {
  for (int t = TID; t < ND; t += NTHR) {
    delta[row * ND + t] = ld(s, AT_DELTA + t);
    lambda[row * ND + t] += ld(s, AT_DELTA + t);
  }
  if (k == 0 && TID == 0) {
    control[problem * CONTROLS + SOLVED] = (real)(magnitude(ld(s, AT_NUMBERS + PCG_ETA)) <= ld(s, AT_NUMBERS + PCG_BOUND));
    control[problem * CONTROLS + LINEAR_ITERATIONS] += ld(s, AT_NUMBERS + PCG_ITERATIONS);
  }
}
