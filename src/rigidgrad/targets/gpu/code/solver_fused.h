/* A knot's parts of the Schur complement from the trajectory, a block of threads a knot (Plancher 2022, Algorithm 6): dynamics, their gradients and the costs of a robot's step
   are computed in shared memory, and those parts from there. What later kernels read goes to global memory, too. Euler's method moves with v, the semi-implicit one (IMPLICIT)
   with the next v. */
#define NV (ND / 2)
#define AT_ACCELERATION (AT_DYNAMICS + DYNAMICS_NUMBERS)
#define AT_BY_Q (AT_ACCELERATION + NV)
#define AT_BY_V (AT_BY_Q + NV * NV)
#define AT_BY_TAU (AT_BY_V + NV * NV)
#define AT_MOVED (AT_BY_TAU + NV * NV)
#define AT_TAU (AT_MOVED + ND)

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

KERNEL THREADS(GROUP) solver_setup(int problems, int knots, GLOBAL const real *options, GLOBAL const real *control, GLOBAL const real *origin,
                                   GLOBAL const real *dt, GLOBAL const real *parameters, GLOBAL const real *x, GLOBAL const real *u,
                                   GLOBAL const real *lambda, GLOBAL real *F, GLOBAL real *g, GLOBAL real *H, GLOBAL real *defects, GLOBAL real *W,
                                   GLOBAL real *R_inverse, GLOBAL real *theta, GLOBAL real *own, GLOBAL real *ahead, GLOBAL real *left,
                                   GLOBAL real *fine) {
  ARENA(s, SETUP_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    const int problem = item / knots, k = item % knots, last = k == knots - 1;
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item;
    const real h = dt[row];
    if (k == 0)
      for (int i = TID; i < ND; i += NTHR) defects[row * ND + i] = origin[problem * NX + i] - x[row * NX + i];
    if (!last) {
      for (int i = TID; i < ND; i += NTHR) st(s, AT_MOVED + i, x[row * NX + i]);
      for (int i = TID; i < NV; i += NTHR) st(s, AT_TAU + i, joint_force(u + row * NU, i));
      SYNC
      dynamics_block(s + AT_DYNAMICS, s + AT_MOVED, s + AT_MOVED + NV, s + AT_TAU, s + AT_ACCELERATION, s + AT_BY_Q, s + AT_BY_V, s + AT_BY_TAU);
      SYNC
      ROLLED
      for (int t = TID; t < ND * NZ; t += NTHR) {
        const int i = t / NZ, j = t % NZ, joint = i % NV, own_place = i == j;
        real y; /* the next velocity by z */
        if (j < NV)
          y = h * ld(s, AT_BY_Q + joint * NV + j);
        else if (j < ND)
          y = FMA(h, ld(s, AT_BY_V + joint * NV + j - NV), (real)(joint == j - NV));
        else
          y = h * by_control(s + AT_BY_TAU, joint, j - ND);
        if (i < NV) y = FMA(h, IMPLICIT ? y : (real)(joint == j - NV), (real)own_place);
        st(s, AT_F + t, y);
        F[row * ND * NZ + t] = y;
      }
      for (int i = TID; i < NV; i += NTHR) {
        const real q = ld(s, AT_MOVED + i), v = ld(s, AT_MOVED + NV + i), v_next = FMA(h, ld(s, AT_ACCELERATION + i), v);
        defects[(row + 1) * ND + i] = FMA(h, IMPLICIT ? v_next : v, q) - x[(row + 1) * NX + i];
        defects[(row + 1) * ND + NV + i] = v_next - x[(row + 1) * NX + NV + i];
      }
      SYNC
    }
    for (int t = TID; t < NZ; t += NTHR) st(s, AT_G + t, (real)0);
    ROLLED
    for (int t = TID; t < NZ * NZ; t += NTHR) st(s, AT_H + t, (real)0);
    SYNC
    if (TID == 0) {
      costs_state(x + row * NX, u + row * NU, parameters + row * NP, s + AT_G, s + AT_H);
      st(s, AT_END, (real)last);
    }
    SYNC
    ROLLED
    for (int t = TID; t < NZ * NZ; t += NTHR) H[row * NZ * NZ + t] = ld(s, AT_H + t);
    for (int i = TID; i < NZ; i += NTHR) g[row * NZ + i] = ld(s, AT_G + i);
    SYNC
    SCHUR_KNOT
    SYNC
  }
}
