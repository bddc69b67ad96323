/* Direct optimisation of states and controls together (Plancher 2022, Algorithm 7). What comes before, the set-up and the conjugate gradients, is in files of its own. */

/* A control with a step, within its bounds; the host puts full steps there, so that this cuts rounding off. */
DEVICE real moved_control(GLOBAL const real *u, GLOBAL const real *lower, GLOBAL const real *upper, GLOBAL const real *step, size_t row, int j, real alpha) {
  const real y = FMA(alpha, step[row * NZ + ND + j], u[row * NU + j]);
#if BOUNDED
  return within(y, lower[row * NU + j], upper[row * NU + j]);
#else
  return y;
#endif
}

/* The state of the knot behind each knot, a thread each: its gap and the tangent space that it is in follow from there. The last knot has none, and takes itself. */
KERNEL THREADS(GROUP) solver_ahead(int problems, int knots, GLOBAL const real *x, GLOBAL real *ahead) {
  for (int t = BID * NTHR + TID; t < problems * knots * NX; t += NBLK * NTHR) {
    const int row = t / NX;
    ahead[t] = x[row % knots == knots - 1 ? t : t + NX];
  }
}

/* The step [dx du] of a knot from the change of the multipliers and the gradient that was left, a block of threads a knot. */
KERNEL THREADS(SMALL_GROUP) solver_recover(int problems, int knots, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *F,
                                           GLOBAL const real *left, GLOBAL const real *W, GLOBAL const real *R_inverse, GLOBAL const real *delta,
                                           GLOBAL real *step) {
  ARENA(s, RECOVER_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    if (!takes_part(control, fine, knots, item / knots)) continue;
    const size_t row = item;
    if (TID == 0) st(s, 0, (real)(item % knots == knots - 1));
    SYNC
    SCHUR_RECOVER
    SYNC
  }
}

/* The states of the step that its controls lead to, a block of threads a problem. */
KERNEL THREADS(SMALL_GROUP) solver_propagate(int problems, int knots, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *F,
                                             GLOBAL const real *defects, GLOBAL real *step) {
  ARENA(s, PROPAGATE_NUMBERS);
  for (int problem = BID; problem < problems; problem += NBLK) {
    if (!takes_part(control, fine, knots, problem)) continue;
    const size_t origin = (size_t)problem * knots;
    for (int t = TID; t < ND; t += NTHR) st(s, t, defects[origin * ND + t]);
    SYNC
    for (int k = 0; k < knots - 1; ++k) {
      const size_t row = origin + k;
      SCHUR_PROPAGATE
      SYNC
    }
    for (int t = TID; t < ND; t += NTHR) step[(origin + knots - 1) * NZ + t] = ld(s, t);
  }
}

/* The cost C and the defect D = |f(x, u) - x'| of every knot with every step size, a thread each (Algorithm 7). */
KERNEL THREADS(ROLL_GROUP) solver_search(int problems, int knots, int count, int stride, GLOBAL const real *control, GLOBAL const real *fine,
                                         GLOBAL const real *alphas, GLOBAL const real *h, GLOBAL const real *parameters, GLOBAL const real *origin,
                                         GLOBAL const real *x, GLOBAL const real *u, GLOBAL const real *lower, GLOBAL const real *upper, GLOBAL const real *step,
                                         GLOBAL real *C, GLOBAL real *D) {
  for (int t = BID * NTHR + TID; t < problems * count * knots; t += NBLK * NTHR) {
    const int k = t % knots, a = t / knots % count, problem = t / (knots * count);
    if (!takes_part(control, fine, knots, problem)) continue;
    const size_t row = (size_t)problem * knots + k, own = ((size_t)problem * stride + a) * knots + k;
    const real alpha = alphas[a], dt = h[row];
    real now[NX], control_now[NU], next[NX], off[ND], cost[1], defect = 0;
    moved_along(x + row * NX, step + row * NZ, alpha, now);
    for (int j = 0; j < NU; ++j) control_now[j] = moved_control(u, lower, upper, step, row, j, alpha);
    knot_state(now, control_now, &dt, parameters + row * NP, next, cost);
    if (k == 0) {
      apart_from(now, origin + problem * NX, off);
      for (int i = 0; i < ND; ++i) defect += magnitude(off[i]);
    }
    if (k < knots - 1) {
      moved_along(x + (row + 1) * NX, step + (row + 1) * NZ, alpha, now);
      apart_state(next, now, off);
      for (int i = 0; i < ND; ++i) defect += magnitude(off[i]);
    }
    C[own] = cost[0];
    D[own] = defect;
  }
}

/* Chooses a step size by J + mu |d| (2.11, 2.12, 6.9) and takes the step, or raises the regularisation, a block of threads a problem. */
KERNEL THREADS(GROUP) solver_judge(int problems, int knots, int count, int stride, GLOBAL const real *options, GLOBAL const real *alphas,
                                   GLOBAL const real *fine, GLOBAL const real *F, GLOBAL const real *g, GLOBAL const real *H, GLOBAL const real *d,
                                   GLOBAL const real *lambda, GLOBAL const real *lower, GLOBAL const real *upper, GLOBAL const real *step, GLOBAL const real *C,
                                   GLOBAL const real *D, GLOBAL real *control, GLOBAL real *x, GLOBAL real *u) {
  ARENA(s, SELECT_NUMBERS);
  LOCAL real *tried = s + GROUP + GROUP / 8, *sums = tried + 2 * STEP_SIZES, *word = sums + 3 * STEP_SIZES;
  for (int problem = BID; problem < problems; problem += NBLK) {
    GLOBAL real *c = control + problem * CONTROLS;
    const int status = (int)c[STATUS];
    if (status > RUNNING) continue;
    const int ready = takes_part(control, fine, knots, problem);
    const size_t origin = (size_t)problem * knots;
    real slope = 0, curve = 0, open = 0, left = 0, size = 0, multiplier = 0;
    if (ready && status == RUNNING)
      for (int k = TID; k < knots; k += NTHR) {
        const size_t row = origin + k;
        GLOBAL const real *z = step + row * NZ;
        for (int i = 0; i < NZ; ++i) {
          real y = 0;
          for (int j = 0; j < NZ; ++j) y = FMA(H[(row * NZ + i) * NZ + j], z[j], y);
          slope = FMA(g[row * NZ + i], z[i], slope);
          curve = FMA(y, z[i], curve);
        }
        for (int i = 0; i < ND; ++i) {
          real y = d[row * ND + i] - z[i];
          if (k)
            for (int j = 0; j < NZ; ++j) y = FMA(F[((row - 1) * ND + i) * NZ + j], step[(row - 1) * NZ + j], y);
          open += magnitude(d[row * ND + i]);
          left += magnitude(y);
          multiplier = magnitude(lambda[row * ND + i]) > multiplier ? magnitude(lambda[row * ND + i]) : multiplier;
        }
        for (int i = 0; i < NX; ++i) size += magnitude(x[row * NX + i]);
      }
    slope = group_reduce(s, slope, 0);
    curve = group_reduce(s, curve, 0);
    open = group_reduce(s, open, 0);
    left = group_reduce(s, left, 0);
    size = group_reduce(s, size, 0);
    multiplier = group_reduce(s, multiplier, 1);
    for (int a = TID; a < count; a += NTHR) {
      real J = 0, defect = 0;
      for (int k = 0; k < knots; ++k) {
        J += C[((size_t)problem * stride + a) * knots + k];
        defect += D[((size_t)problem * stride + a) * knots + k];
      }
      st(sums, 3 * a, J);
      st(sums, 3 * a + 1, defect);
    }
    SYNC
    if (TID == 0) {
      int chosen = -1, now = RUNNING;
      real rho = c[RHO];
      const real before = c[COST];
      if (status == BEGIN) {
        c[COST] = c[FIRST_COST] = ld(sums, 0);
        c[LARGEST_DEFECT] = ld(sums, 1);
        if (!FINITE(ld(sums, 0)) || !FINITE(ld(sums, 1))) now = DIVERGED;
      } else {
        if (c[AGAIN] == 0) {
          c[ITERATIONS_DONE] += 1;
          c[LEAST] = c[REFUSED] = 0;
        }
        c[AGAIN] = 1;
        const int definite = ready && FINITE(slope) && FINITE(curve) && FINITE(left), words[] = {RUNNING, CONVERGED, STALLED};
        int small = 0;
        if (definite) {
          const real closing = open - left, rounding = options[ROUNDING] * size; /* defects are differences of states */
          real mu = c[SIGMA];
          /* one of another trajectory, such as a guess that ran away, is forgotten (kernels/search.py) */
          if (mu == 0 || (multiplier > 0 && mu > (real)1e8 * options[FIRST_PENALTY] * multiplier)) mu = options[FIRST_PENALTY] * multiplier;
          if (closing > rounding) mu = policy_penalty(mu, closing, slope, curve);
          c[SIGMA] = mu;
          const real expected = mu * closing - slope - (real)0.5 * curve;
          real scale = magnitude(before), least = options[NOTHING] * magnitude(c[FIRST_COST]);
          scale = scale < least ? least : scale;
          small = magnitude(expected) <= c[TOLERANCE] * scale + mu * rounding && c[SOLVED] != 0;
          if (!small || rho <= c[LEAST]) {
            for (int a = 0; a < count; ++a) {
              const real merit = ld(sums, 3 * a) + mu * ld(sums, 3 * a + 1);
              st(tried, 2 * a, merit);
              st(tried, 2 * a + 1,
                 policy_acceptable(before + mu * open - merit, alphas[a] * (mu * closing - slope), options[ACCEPT_LOW], options[ACCEPT_HIGH]));
            }
            /* with constraints the last step is taken too: without it, renewed multipliers would find the same violations again and again */
            if (expected > 0 && (!small || options[CONSTRAINED] != 0)) chosen = choose(tried, count, (int)options[CHOOSE] == BEST);
          }
        }
        real after[4];
        policy_judged_direct((real)(chosen >= 0), (real)definite, (real)small, rho, options[RHO_LOW], options[RHO_HIGH], c[LEAST], c[REFUSED], after);
        now = words[(int)after[0]];
        rho = after[1];
        c[LEAST] = after[2];
        c[REFUSED] = after[3];
        if (chosen >= 0) {
          c[COST] = ld(sums, 3 * chosen);
          c[LARGEST_DEFECT] = ld(sums, 3 * chosen + 1);
          c[ALPHA] = alphas[chosen];
          c[AGAIN] = 0;
          if (now == RUNNING && c[ITERATIONS_DONE] >= options[MOST]) now = ITERATIONS;
        }
      }
      c[RHO] = rho;
      c[STATUS] = (real)now;
      st(word, 0, (real)chosen);
    }
    SYNC
    const int chosen = (int)ld(word, 0);
    if (chosen >= 0) {
      const real alpha = alphas[chosen];
      for (int k = TID; k < knots; k += NTHR) {
        const size_t row = origin + k;
        real moved[NX];
        moved_along(x + row * NX, step + row * NZ, alpha, moved);
        for (int i = 0; i < NX; ++i) x[row * NX + i] = moved[i];
        for (int j = 0; j < NU && k < knots - 1; ++j) u[row * NU + j] = moved_control(u, lower, upper, step, row, j, alpha);
      }
    }
  }
}
