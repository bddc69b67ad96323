/* A row of the Schur complement from the trajectory, a block of threads a knot (Plancher 2022, Algorithm 6): dynamics, their gradients and the costs of a robot's step are
   computed in shared memory, and S from there. What later kernels read goes to global memory, too. The block of knot k has the step from the knot before and the costs of both
   knots, which are therefore computed twice. Euler's method moves with v, the semi-implicit one (IMPLICIT) with the next v. */
#define NV (ND / 2)
#define AT_ACCELERATION DYNAMICS_NUMBERS
#define AT_BY_Q (AT_ACCELERATION + NV)
#define AT_BY_V (AT_BY_Q + NV * NV)
#define AT_BY_TAU (AT_BY_V + NV * NV)
#define AT_F SCRATCH_NUMBERS
#define AT_MOVED (AT_F + ND * NZ)
#define AT_TAU (AT_MOVED + ND)
#define AT_G_LAST (AT_TAU + NV)
#define AT_G (AT_G_LAST + NZ)

/* tau of the controls, and what it is to M^-1 */
DEVICE real joint_force(GLOBAL const real *u, int i) {
#if ACTUATED
  real y = 0;
  for (int j = 0; j < NU; ++j) y = FMA(K_ACTUATION[i * NU + j], u[j], y);
  return y;
#else
  return u[i];
#endif
}
DEVICE real by_control(LOCAL const real *by_tau, int i, int j) {
#if ACTUATED
  real y = 0;
  for (int l = 0; l < NV; ++l) y = FMA(ld(by_tau, i * NV + l), K_ACTUATION[l * NU + j], y);
  return y;
#else
  return ld(by_tau, i * NV + j);
#endif
}

KERNEL THREADS(GROUP) solver_setup(int problems, int knots, GLOBAL const real *control, GLOBAL const real *origin, GLOBAL const real *dt,
                                   GLOBAL const real *parameters, GLOBAL const real *x, GLOBAL const real *u, GLOBAL const real *lambda, GLOBAL real *F,
                                   GLOBAL real *g, GLOBAL real *H, GLOBAL real *d, GLOBAL real *inverse, GLOBAL real *before, GLOBAL real *Q_inverse,
                                   GLOBAL real *R_inverse, GLOBAL real *gamma, GLOBAL real *reduced, GLOBAL real *fine) {
  ARENA(s, SETUP_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    const int problem = item / knots, k = item % knots;
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item, last = k ? row - 1 : row;
    const real h = dt[last];
    for (int i = TID; i < ND; i += NTHR) st(s, AT_MOVED + i, x[last * NX + i]);
    for (int i = TID; i < NV; i += NTHR) st(s, AT_TAU + i, joint_force(u + last * NU, i));
    SYNC
    dynamics_block(s, s + AT_MOVED, s + AT_MOVED + NV, s + AT_TAU, s + AT_ACCELERATION, s + AT_BY_Q, s + AT_BY_V, s + AT_BY_TAU);
    SYNC
    ROLLED
    for (int t = TID; t < ND * NZ; t += NTHR) {
      const int i = t / NZ, j = t % NZ, joint = i % NV, own = i == j;
      real y; /* the next velocity by z */
      if (j < NV)
        y = h * ld(s, AT_BY_Q + joint * NV + j);
      else if (j < ND)
        y = FMA(h, ld(s, AT_BY_V + joint * NV + j - NV), (real)(joint == j - NV));
      else
        y = h * by_control(s + AT_BY_TAU, joint, j - ND);
      if (i < NV) y = FMA(h, IMPLICIT ? y : (real)(joint == j - NV), (real)own);
      st(s, AT_F + t, y);
      if (k) F[last * ND * NZ + t] = y;
    }
    for (int i = TID; i < NV; i += NTHR) {
      const real v = ld(s, AT_MOVED + NV + i), v_next = FMA(h, ld(s, AT_ACCELERATION + i), v);
      st(s, AT_MOVED + i, FMA(h, IMPLICIT ? v_next : v, ld(s, AT_MOVED + i)));
      st(s, AT_MOVED + NV + i, v_next);
    }
    SYNC
    ROLLED
    for (int t = TID; t < AT_BR; t += NTHR) st(s, t, (real)0);
    ROLLED
    for (int t = TID; t < 2 * NZ; t += NTHR) st(s, AT_G_LAST + t, (real)0);
    SYNC
    if (TID < 2) { /* R of this knot goes to where an inverse will be */
      const size_t own = TID ? row : last;
      costs_state(x + own * NX, u + own * NU, parameters + own * NP, s + AT_G_LAST + TID * NZ, s + (TID ? AT_HERE : AT_THERE), s + AT_R + TID * NU * NU);
    }
    SYNC
    ROLLED
    for (int t = TID; t < NZ * NZ; t += NTHR) {
      const int i = t / NZ, j = t % NZ;
      real y = 0;
      if (i < ND && j < ND) y = ld(s, AT_HERE + i * ND + j);
      if (i >= ND && j >= ND) y = ld(s, AT_R + NU * NU + (i - ND) * NU + j - ND);
      H[row * NZ * NZ + t] = y;
    }
    for (int i = TID; i < NZ; i += NTHR) g[row * NZ + i] = ld(s, AT_G + i);
    for (int i = TID; i < ND; i += NTHR) st(s, AT_DEFECT + i, (k ? ld(s, AT_MOVED + i) : origin[problem * NX + i]) - x[row * NX + i]);
    SYNC
    schur_row(s, s + AT_F, s + AT_G_LAST, s + AT_G, k, k == knots - 1, row, control[problem * CONTROLS + RHO], lambda, d, inverse, before, Q_inverse,
              R_inverse, gamma, reduced, fine);
  }
}
