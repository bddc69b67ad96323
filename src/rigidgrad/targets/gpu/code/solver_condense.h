/* The LQ problem of a step with controls held and without products of states and controls, which the set-up of the conjugate gradients is for; and the step of the whole
   problem from its solution. Which controls are held, and what is added to R and r, is the host's (`control/linear/box.py`): this knows matrices alone. */

/* A knot's F, g, H and gap with controls `held` at `values`, `weight` on the diagonal of R and `push` on r, a block of threads a knot. A held control has no column of F, and
   a row of its own in R. Then du = dv - (R + rho)^-1 S dx leaves A - B (R + rho)^-1 S, Q - S' (R + rho)^-1 S, and no S; that matrix is kept in `feedback`. Also the defects of
   the problem as it is. */
KERNEL THREADS(GROUP) solver_condense(int problems, int knots, GLOBAL const real *control, GLOBAL const real *origin, GLOBAL const real *x,
                                      GLOBAL const real *gap, GLOBAL const real *F, GLOBAL const real *g, GLOBAL const real *H, GLOBAL const real *held,
                                      GLOBAL const real *values, GLOBAL const real *weight, GLOBAL const real *push, GLOBAL real *defects,
                                      GLOBAL real *own_gap, GLOBAL real *own_F, GLOBAL real *own_g, GLOBAL real *own_H, GLOBAL real *feedback) {
  ARENA(s, CONDENSE_NUMBERS);
  LOCAL real *fixed = s, *at = fixed + NU, *r = at + NU, *S = r + NU, *T = S + NU * ND, *R = T + NU * ND;
  for (int item = BID; item < problems * knots; item += NBLK) {
    const int problem = item / knots, k = item % knots, end = k == knots - 1;
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item;
    const real rho = control[problem * CONTROLS + RHO];
    GLOBAL const real *f = F + row * ND * NZ, *l = g + row * NZ, *h = H + row * NZ * NZ;
    for (int i = TID; i < NU; i += NTHR) {
      const int own = !end && held[row * NU + i] != 0;
      st(fixed, i, (real)own);
      st(at, i, own ? values[row * NU + i] : (real)0);
    }
    if (k == 0 && TID == 0) {
      real start[NX], off[ND];
      for (int i = 0; i < NX; ++i) start[i] = origin[problem * NX + i];
      apart_from(start, x + row * NX, off);
      for (int i = 0; i < ND; ++i) defects[row * ND + i] = off[i];
    }
    SYNC
    for (int i = TID; i < NU; i += NTHR) {
      real y = l[ND + i] + push[row * NU + i];
      for (int c = 0; c < NU; ++c) y = FMA(h[(ND + i) * NZ + ND + c], ld(at, c), y);
      st(r, i, ld(fixed, i) != 0 || end ? (real)0 : y);
    }
    for (int t = TID; t < NU * NU; t += NTHR) {
      const int i = t / NU, j = t % NU;
      real y = h[(ND + i) * NZ + ND + j] + (i == j ? weight[row * NU + i] : (real)0);
      if (ld(fixed, i) != 0 || ld(fixed, j) != 0) y = i == j ? magnitude(y) + (real)1 : (real)0;
      own_H[(row * NZ + ND + i) * NZ + ND + j] = y;
      st(R, t, y + (i == j ? rho : (real)0));
    }
    for (int t = TID; t < ND * NU; t += NTHR) {
      const int i = t / ND, j = t % ND;
      const real y = ld(fixed, i) != 0 || end ? (real)0 : h[(ND + i) * NZ + j];
      st(S, t, y);
      own_H[(row * NZ + ND + i) * NZ + j] = own_H[(row * NZ + j) * NZ + ND + i] = 0;
    }
    SYNC
    LOCAL real *inverse = R;
#if COUPLES
    if (!end)
      for (int p = 0; p < NU; ++p) {
        LOCAL real *to = inverse == R ? R + NU * NU : R;
        pivot_step(inverse, to, NU, p);
        inverse = to;
        SYNC
      }
#endif
    for (int t = TID; t < ND * NU; t += NTHR) {
      real y = 0;
      for (int c = 0; c < NU && COUPLES && !end; ++c) y = FMA(ld(inverse, t / ND * NU + c), ld(S, c * ND + t % ND), y);
      st(T, t, y);
      feedback[row * NU * ND + t] = -y;
    }
    SYNC
    for (int t = TID; t < ND * ND; t += NTHR) {
      const int i = t / ND, j = t % ND;
      real y = h[i * NZ + j], z = f[i * NZ + j];
      for (int c = 0; c < NU && COUPLES; ++c) {
        y = FMA(-ld(S, c * ND + i), ld(T, c * ND + j), y);
        z = FMA(-f[i * NZ + ND + c], ld(T, c * ND + j), z); /* T of a held control is zero */
      }
      own_H[(row * NZ + i) * NZ + j] = y;
      own_F[(row * ND + i) * NZ + j] = z;
    }
    for (int t = TID; t < ND * NU; t += NTHR) {
      const int i = t / NU, j = t % NU;
      own_F[(row * ND + i) * NZ + ND + j] = ld(fixed, j) != 0 ? (real)0 : f[i * NZ + ND + j];
    }
    for (int j = TID; j < NZ; j += NTHR) {
      real y = j < ND ? l[j] : ld(r, j - ND);
      for (int c = 0; c < NU && j < ND; ++c) {
        y = FMA(h[(ND + c) * NZ + j], ld(at, c), y);
        y = FMA(-ld(T, c * ND + j), ld(r, c), y);
      }
      own_g[row * NZ + j] = y;
    }
    for (int i = TID; i < ND && !end; i += NTHR) {
      real y = gap[row * ND + i];
      defects[(row + 1) * ND + i] = y;
      for (int c = 0; c < NU; ++c) y = FMA(f[i * NZ + ND + c], ld(at, c), y);
      own_gap[row * ND + i] = y;
    }
    SYNC
  }
}

/* The controls of the whole problem's step, a thread a knot; and the gradient of its Lagrangian by them, with the diagonal of R, which say whether bounds hold them. */
KERNEL THREADS(SMALL_GROUP) solver_complete(int problems, int knots, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *F,
                                            GLOBAL const real *g, GLOBAL const real *H, GLOBAL const real *held, GLOBAL const real *values,
                                            GLOBAL const real *feedback, GLOBAL const real *lambda, GLOBAL real *step, GLOBAL real *gradient,
                                            GLOBAL real *diagonal) {
  for (int item = BID * NTHR + TID; item < problems * knots; item += NBLK * NTHR) {
    const int problem = item / knots;
    if (item % knots == knots - 1 || !takes_part(control, fine, knots, problem)) continue;
    const size_t row = item;
    const real rho = control[problem * CONTROLS + RHO];
    GLOBAL real *z = step + row * NZ;
    for (int i = 0; i < NU; ++i) {
      real y = z[ND + i];
      for (int j = 0; j < ND; ++j) y = FMA(feedback[(row * NU + i) * ND + j], z[j], y);
      z[ND + i] = held[row * NU + i] != 0 ? values[row * NU + i] : y;
    }
    for (int i = 0; i < NU; ++i) {
      GLOBAL const real *h = H + (row * NZ + ND + i) * NZ;
      real y = FMA(rho, z[ND + i], g[row * NZ + ND + i]);
      for (int j = 0; j < NZ; ++j) y = FMA(h[j], z[j], y);
      for (int j = 0; j < ND; ++j) y = FMA(F[(row * ND + j) * NZ + ND + i], lambda[(row + 1) * ND + j], y);
      gradient[row * NU + i] = y;
      diagonal[row * NU + i] = h[ND + i] + rho;
    }
  }
}
