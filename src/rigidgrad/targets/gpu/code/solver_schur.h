/* The set-up of the conjugate gradients (Plancher 2022, Algorithm 6), without what brings a knot's matrices: `solver_fused.h` computes them, `solver_split.h` reads them.
   SOURCE is the memory that F and g are in, FETCH reads a number from there. */
#define SQUARE (ND * ND)
/* of a block's shared memory: Q of this knot and Q, R of the one before, each with room for its inverse; B R^-1; the diagonals; the gradient that is left of the knot
   before; the defect */
#define AT_HERE 0
#define AT_THERE (2 * SQUARE)
#define AT_R (4 * SQUARE)
#define AT_BR (AT_R + 2 * NU * NU)
#define AT_DIAGONAL (AT_BR + ND * NU)
#define AT_LEFT (AT_DIAGONAL + 2 * ND + NU)
#define AT_DEFECT (AT_LEFT + NZ)

/* Row k of the Schur complement S = C G^-1 C' and of its right-hand side, by all threads of a block (6.5, 6.6, with one sign throughout), from shared memory with
   the matrices, still without regularisation, and the defect d; F of the knot before and g of both knots:
   - the inverse of the diagonal block theta_k = A Q^-1 A' + B R^-1 B' + Q_k^-1, with A, B, Q, R of the knot before; [A Q^-1  B R^-1]', whose first rows are
     -phi_k'; Q_k^-1 and R^-1. Q^-1 is computed by both knots that need it, as in Algorithm 6;
   - what is left of the gradient of the knot before, g - C' lambda, which the step is computed from. The unknown is how lambda changes: what is left is small near the
     optimum, so that lambda's own rounding is not in the step;
   - gamma, in two parts: d - [A Q^-1  B R^-1] left of this row, and Q^-1 left of the row before, whose other part is that row's own.
   The first knot has none before: it computes with itself and leaves that out. */
DEVICE void schur_row(LOCAL real *s, SOURCE const real *f, SOURCE const real *g_last, SOURCE const real *g, int k, int end, size_t row, real rho,
                      GLOBAL const real *lambda, GLOBAL real *d, GLOBAL real *inverse, GLOBAL real *before, GLOBAL real *Q_inverse,
                      GLOBAL real *R_inverse, GLOBAL real *gamma, GLOBAL real *reduced, GLOBAL real *fine) {
  LOCAL real *here = s + AT_HERE, *there = s + AT_THERE, *R = s + AT_R, *TB = s + AT_BR, *diagonal = s + AT_DIAGONAL, *left = s + AT_LEFT;
  const size_t last = k ? row - 1 : row;
  ROLLED
  for (int t = TID; t < 2 * ND + NU; t += NTHR) {
    const int i = t < 2 * ND ? t % ND : t - 2 * ND;
    LOCAL real *place = t < ND ? here + i * (ND + 1) : t < 2 * ND ? there + i * (ND + 1) : R + i * (NU + 1);
    const real y = ld(place, 0) + rho;
    st(place, 0, y);
    st(diagonal, t, y);
  }
  for (int j = TID; j < NZ; j += NTHR) {
    real y = FETCH(g_last, j) - (j < ND ? lambda[last * ND + j] : (real)0);
    for (int l = 0; l < ND; ++l) y = FMA(FETCH(f, l * NZ + j), lambda[row * ND + l], y);
    st(left, j, y);
    if (k) reduced[last * NZ + j] = y;
    if (end) reduced[row * NZ + j] = FETCH(g, j) - (j < ND ? lambda[row * ND + j] : (real)0);
  }
  SYNC
  int ok = 1;
  for (int p = 0; p < (ND > NU ? ND : NU); ++p) {
    const int from = p % 2, to = 1 - from;
    if (p < ND) {
      ok = ok && ld(here, from * SQUARE + p * ND + p) > SINGULAR * magnitude(ld(diagonal, p));
      ok = ok && ld(there, from * SQUARE + p * ND + p) > SINGULAR * magnitude(ld(diagonal, ND + p));
      pivot_step(here + from * SQUARE, here + to * SQUARE, ND, p);
      pivot_step(there + from * SQUARE, there + to * SQUARE, ND, p);
    }
    if (p < NU) {
      ok = ok && ld(R, from * NU * NU + p * NU + p) > SINGULAR * magnitude(ld(diagonal, 2 * ND + p));
      pivot_step(R + from * NU * NU, R + to * NU * NU, NU, p);
    }
    SYNC
  }
  LOCAL real *Qi = here + ND % 2 * SQUARE, *Qi_last = there + ND % 2 * SQUARE, *Ri = R + NU % 2 * NU * NU;
  LOCAL real *theta = here + (1 - ND % 2) * SQUARE, *T = there + (1 - ND % 2) * SQUARE; /* where the inversions began */
  ROLLED
  for (int t = TID; t < ND * NZ; t += NTHR) {
    const int i = t / NZ, j = t % NZ;
    real y = 0;
    if (j < ND) {
      for (int l = 0; l < ND; ++l) y = FMA(FETCH(f, i * NZ + l), ld(Qi_last, l * ND + j), y);
      st(T, i * ND + j, y);
    } else {
      for (int l = 0; l < NU; ++l) y = FMA(FETCH(f, i * NZ + ND + l), ld(Ri, l * NU + j - ND), y);
      st(TB, i * NU + j - ND, y);
    }
    before[(row * NZ + j) * ND + i] = y;
  }
  ROLLED
  for (int t = TID; t < SQUARE; t += NTHR) Q_inverse[row * SQUARE + t] = ld(Qi, t);
  if (k)
    for (int t = TID; t < NU * NU; t += NTHR) R_inverse[last * NU * NU + t] = ld(Ri, t);
  for (int i = TID; i < ND; i += NTHR) {
    real y = 0, y_end = 0;
    for (int l = 0; l < ND; ++l) y = FMA(ld(Qi_last, i * ND + l), ld(left, l), y);
    if (k) gamma[(2 * last + 1) * ND + i] = y;
    if (end) {
      for (int l = 0; l < ND; ++l) y_end = FMA(ld(Qi, i * ND + l), FETCH(g, l) - lambda[row * ND + l], y_end);
      gamma[(2 * row + 1) * ND + i] = y_end;
    }
  }
  SYNC
  ROLLED
  for (int t = TID; t < SQUARE; t += NTHR) {
    const int i = t / ND, j = t % ND;
    if (i <= j) {
      real y = (real)0.5 * (ld(Qi, i * ND + j) + ld(Qi, j * ND + i));
      if (k) {
        for (int l = 0; l < ND; ++l) y = FMA(ld(T, i * ND + l), FETCH(f, j * NZ + l), y);
        for (int l = 0; l < NU; ++l) y = FMA(ld(TB, i * NU + l), FETCH(f, j * NZ + ND + l), y);
      }
      st(theta, i * ND + j, y);
      if (i != j) st(theta, j * ND + i, y);
    }
  }
  for (int i = TID; i < ND; i += NTHR) {
    const real own = ld(s, AT_DEFECT + i);
    real y = own;
    if (k) {
      for (int l = 0; l < ND; ++l) y = FMA(-ld(T, i * ND + l), ld(left, l), y);
      for (int l = 0; l < NU; ++l) y = FMA(-ld(TB, i * NU + l), ld(left, ND + l), y);
    }
    d[row * ND + i] = own;
    gamma[2 * row * ND + i] = y;
  }
  SYNC
  LOCAL real *other = Qi_last;
  for (int p = 0; p < ND; ++p) {
    ok = ok && ld(theta, p * ND + p) > 0;
    pivot_step(theta, other, ND, p);
    LOCAL real *done = other;
    other = theta;
    theta = done;
    SYNC
  }
  ROLLED
  for (int t = TID; t < SQUARE; t += NTHR) inverse[row * SQUARE + t] = (real)0.5 * (ld(theta, t) + ld(theta, t % ND * ND + t / ND));
  if (TID == 0) fine[row] = (real)ok;
  SYNC
}

/* The blocks beside the diagonal of the symmetric stair, -theta_k^-1 phi_k theta_{k-1}^-1, a block of threads a knot (6.8). */
KERNEL THREADS(GROUP) solver_stair(int problems, int knots, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *before,
                                   GLOBAL const real *inverse, GLOBAL real *beside, GLOBAL real *beside_t) {
  ARENA(s, SQUARE);
  for (int item = BID; item < problems * knots; item += NBLK) {
    if (item % knots == 0 || !takes_part(control, fine, knots, item / knots)) continue;
    GLOBAL const real *m = before + (size_t)item * NZ * ND, *now = inverse + (size_t)item * SQUARE, *last = now - SQUARE;
    for (int t = TID; t < SQUARE; t += NTHR) {
      real y = 0;
      for (int l = 0; l < ND; ++l) y = FMA(m[l * ND + t / ND], last[l * ND + t % ND], y);
      st(s, t, y);
    }
    SYNC
    for (int t = TID; t < SQUARE; t += NTHR) {
      const int i = t / ND, j = t % ND;
      real y = 0;
      for (int l = 0; l < ND; ++l) y = FMA(now[i * ND + l], ld(s, l * ND + j), y);
      beside[(size_t)item * SQUARE + t] = beside_t[(size_t)item * SQUARE + j * ND + i] = y;
    }
    SYNC
  }
}
