/* Conjugate gradients with a block tridiagonal preconditioner, a block of threads a problem (Plancher 2022, Algorithm 5). One block a knot would have to wait for all
   others five times an iteration; blocks of a launch cannot, in OpenCL at all and in CUDA only if all of them fit the device at once. Here a thread has rows of S, the
   vectors that neighbours read are in shared memory, and a batch of problems fills the device. KNOTS is known to the compiler. */
#define UNKNOWNS (KNOTS * ND)
#define ROWS ((UNKNOWNS + GROUP - 1) / GROUP)

/* Row i of a symmetric block tridiagonal matrix times v; blocks below the diagonal come with their transposes, so that neighbouring threads read neighbours. */
DEVICE real row_times(GLOBAL const real *diagonal, GLOBAL const real *below, GLOBAL const real *below_t, LOCAL const real *v, int i) {
  const int k = i / ND, r = i % ND;
  GLOBAL const real *m = diagonal + k * ND * ND + r;
  real y = 0;
  for (int j = 0; j < ND; ++j) y = FMA(m[j * ND], ld(v, k * ND + j), y);
  if (k > 0) {
    m = below_t + k * ND * ND + r;
    for (int j = 0; j < ND; ++j) y = FMA(m[j * ND], ld(v, (k - 1) * ND + j), y);
  }
  if (k < KNOTS - 1) {
    m = below + (k + 1) * ND * ND + r;
    for (int j = 0; j < ND; ++j) y = FMA(m[j * ND], ld(v, (k + 1) * ND + j), y);
  }
  return y;
}

/* S v = C G^-1 (C' v) is computed in two steps, because the sums in theta lose what float32 needs: number i of y = C' v, and then row i of C G^-1 y. */
DEVICE real gather(GLOBAL const real *F, LOCAL const real *v, int i) {
  const int k = i / NZ, j = i % NZ;
  real y = j < ND ? ld(v, k * ND + j) : (real)0;
  if (k < KNOTS - 1)
    for (int l = 0; l < ND; ++l) y = FMA(-F[(k * ND + l) * NZ + j], ld(v, (k + 1) * ND + l), y);
  return y;
}
DEVICE real spread(GLOBAL const real *Q_inverse, GLOBAL const real *before, LOCAL const real *y, int i) {
  const int k = i / ND, r = i % ND;
  real x = 0;
  for (int j = 0; j < ND; ++j) x = FMA(Q_inverse[(k * ND + j) * ND + r], ld(y, k * NZ + j), x);
  if (k > 0)
    for (int j = 0; j < NZ; ++j) x = FMA(-before[(k * NZ + j) * ND + r], ld(y, (k - 1) * NZ + j), x);
  return x;
}

KERNEL THREADS(GROUP) solver_pcg(int problems, int limit, GLOBAL const real *options, GLOBAL const real *fine, GLOBAL const real *F,
                                 GLOBAL const real *gamma, GLOBAL const real *Q_inverse, GLOBAL const real *before, GLOBAL const real *inverse,
                                 GLOBAL const real *beside, GLOBAL const real *beside_t, GLOBAL real *control, GLOBAL real *lambda,
                                 GLOBAL real *delta) {
  ARENA(s, PCG_NUMBERS);
  LOCAL real *p = s, *r = p + UNKNOWNS, *y = r + UNKNOWNS, *scratch = y + KNOTS * NZ;
  for (int problem = BID; problem < problems; problem += NBLK) {
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING || !takes_part(control, fine, KNOTS, problem)) continue;
    const size_t knots = (size_t)problem * KNOTS, rows = knots * ND, blocks = rows * ND, wide = rows * NZ;
    real answer[ROWS], t[ROWS], dot = 0;
    for (int c = 0; c < ROWS; ++c) {
      const int i = TID + c * GROUP;
      answer[c] = 0;
      if (i < UNKNOWNS) {
        GLOBAL const real *parts = gamma + 2 * (knots + i / ND) * ND + i % ND;
        st(r, i, parts[0] + parts[ND]);
      }
    }
    SYNC
    for (int c = 0; c < ROWS; ++c) {
      const int i = TID + c * GROUP;
      if (i < UNKNOWNS) {
        t[c] = row_times(inverse + blocks, beside + blocks, beside_t + blocks, r, i);
        dot = FMA(t[c], ld(r, i), dot);
      }
    }
    real eta = group_reduce(scratch, dot, 0);
    const real bound = options[LINEAR_TOLERANCE] * magnitude(eta);
    for (int c = 0; c < ROWS; ++c) {
      const int i = TID + c * GROUP;
      if (i < UNKNOWNS) st(p, i, t[c]);
    }
    int iteration = 0;
    for (; iteration < limit && magnitude(eta) > bound; ++iteration) {
      SYNC
      for (int i = TID; i < KNOTS * NZ; i += NTHR) st(y, i, gather(F + wide, p, i));
      SYNC
      dot = 0;
      for (int c = 0; c < ROWS; ++c) {
        const int i = TID + c * GROUP;
        if (i < UNKNOWNS) {
          t[c] = spread(Q_inverse + blocks, before + wide, y, i);
          dot = FMA(t[c], ld(p, i), dot);
        }
      }
      const real curvature = group_reduce(scratch, dot, 0);
      if (!(curvature > 0 && eta > 0)) break; /* rounding, or something is not a number */
      const real alpha = eta / curvature;
      for (int c = 0; c < ROWS; ++c) {
        const int i = TID + c * GROUP;
        if (i < UNKNOWNS) {
          answer[c] = FMA(alpha, ld(p, i), answer[c]);
          st(r, i, FMA(-alpha, t[c], ld(r, i)));
        }
      }
      SYNC
      dot = 0;
      for (int c = 0; c < ROWS; ++c) {
        const int i = TID + c * GROUP;
        if (i < UNKNOWNS) {
          t[c] = row_times(inverse + blocks, beside + blocks, beside_t + blocks, r, i);
          dot = FMA(t[c], ld(r, i), dot);
        }
      }
      const real after = group_reduce(scratch, dot, 0), beta = after / eta;
      for (int c = 0; c < ROWS; ++c) {
        const int i = TID + c * GROUP;
        if (i < UNKNOWNS) st(p, i, FMA(beta, ld(p, i), t[c]));
      }
      eta = after;
    }
    for (int c = 0; c < ROWS; ++c) {
      const int i = TID + c * GROUP;
      if (i < UNKNOWNS) {
        delta[rows + i] = answer[c];
        lambda[rows + i] += answer[c];
      }
    }
    if (TID == 0) {
      control[problem * CONTROLS + SOLVED] = (real)(magnitude(eta) <= bound);
      control[problem * CONTROLS + LINEAR_ITERATIONS] += (real)iteration;
    }
  }
}
