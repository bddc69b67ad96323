/* Parallel differential dynamic programming (Plancher 2022, Algorithm 2). */
#define VALUE (ND * (ND + 1)) /* a cost-to-go: V_xx, then V_x */
#define GAINS (NU * (ND + 1)) /* of a knot: rows of K, each with its kappa behind */
#define FAR ((real)1e30)
#define CLOSED_GAP ((real)1e-12) /* gaps below are none */

/* The backward pass over a block of knots by a block of threads (2.7-2.9, 4.3-4.5): BACKWARD_KNOT is a knot of it, and KNOT_NUMBERS what that keeps in shared memory from
   knot to knot, the cost-to-go V first and whether H_uu was positive definite last. Blocks begin with the cost-to-go `end` that the iteration before left there; the first time
   a problem is one block, and hands it through. `held` is which bounds held controls the last time. CURVED: where an account says NEWTON, `curved` is H with the second
   derivatives of the dynamics, weighted by the cost-to-go of the next knot; else it is H. */
KERNEL THREADS(GROUP) solver_backward(int problems, int steps, int blocks, GLOBAL const real *options, GLOBAL const real *control, GLOBAL const real *F,
                                      GLOBAL const real *g, GLOBAL const real *H, GLOBAL const real *gap, GLOBAL const real *end, GLOBAL const real *u,
                                      GLOBAL const real *lower, GLOBAL const real *upper, GLOBAL const real *x, GLOBAL const real *dt,
                                      GLOBAL const real *parameters, GLOBAL real *curved, GLOBAL real *held, GLOBAL real *start, GLOBAL real *gains,
                                      GLOBAL real *closed, GLOBAL real *fine) {
  ARENA(s, BACKWARD_NUMBERS);
  for (int item = BID; item < problems * blocks; item += NBLK) {
    const int problem = item / blocks, block = item % blocks;
    GLOBAL const real *c = control + problem * CONTROLS;
    const int fresh = c[FRESH] != 0;
    if ((int)c[STATUS] != RUNNING || (fresh && block != blocks - 1)) continue;
    const int first = fresh ? 0 : block_start(steps, blocks, block), last = block_start(steps, blocks, block + 1), knots = steps + 1;
    if (block == blocks - 1) {
      const size_t row = (size_t)problem * knots + steps;
      for (int t = TID; t < VALUE; t += NTHR) st(s, t, t < ND * ND ? H[row * NZ * NZ + (t / ND) * NZ + t % ND] : g[row * NZ + t - ND * ND]);
#if CURVED
      for (int t = TID; t < NZ * NZ; t += NTHR) curved[row * NZ * NZ + t] = H[row * NZ * NZ + t];
#endif
    } else {
      for (int t = TID; t < VALUE; t += NTHR) st(s, t, end[(size_t)item * VALUE + t]);
    }
    for (int t = VALUE + TID; t < KNOT_NUMBERS; t += NTHR) st(s, t, (real)(t == KNOT_NUMBERS - 1));
    SYNC
    int before = block;
    for (int k = last - 1; k >= first && ld(s, KNOT_NUMBERS - 1) > 0; --k) {
      const size_t row = (size_t)problem * knots + k;
      BACKWARD_KNOT
      SYNC
      if (k == block_start(steps, blocks, before)) {
        for (int t = TID; t < VALUE; t += NTHR) start[((size_t)problem * blocks + before) * VALUE + t] = ld(s, t);
        --before;
        SYNC
      }
    }
    for (int b = TID; b < blocks; b += NTHR)
      if (b == block || fresh) fine[problem * blocks + b] = ld(s, KNOT_NUMBERS - 1);
    SYNC
  }
}

/* The step of a whole alpha by the linearised dynamics, a block of threads a problem: rows [dx du] of all knots (4.7). A step of alpha is alpha times that. CONSENSUS_KNOT
   goes on from dx, in shared memory with a one behind. */
KERNEL THREADS(GROUP) solver_consensus(int problems, int steps, int blocks, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *gains,
                                       GLOBAL const real *closed, GLOBAL real *step) {
  ARENA(s, CONSENSUS_NUMBERS);
  for (int problem = BID; problem < problems; problem += NBLK) {
    if (!takes_part(control, fine, blocks, problem)) continue;
    for (int t = TID; t <= ND; t += NTHR) st(s, t, (real)(t == ND));
    SYNC
    for (int k = 0; k < steps; ++k) {
      const size_t row = (size_t)problem * (steps + 1) + k;
      CONSENSUS_KNOT
      SYNC
    }
    for (int t = TID; t < NZ; t += NTHR) step[((size_t)problem * (steps + 1) + steps) * NZ + t] = t < ND ? ld(s, t) : (real)0;
  }
}

/* Simulates blocks of knots, each with each step size, a thread each. X, U: the trajectories; C: what they cost; D: by how much they miss the next block. With `gaps` the
   reference has one at every knot, of which a step keeps the part 1 - alpha. */
KERNEL THREADS(ROLL_GROUP) solver_roll_out(int problems, int steps, int shooting, int blocks, int count, int stride, int gaps, GLOBAL const real *control,
                                           GLOBAL const real *fine, GLOBAL const real *alphas, GLOBAL const real *h, GLOBAL const real *parameters,
                                           GLOBAL const real *x, GLOBAL const real *u, GLOBAL const real *lower, GLOBAL const real *upper,
                                           GLOBAL const real *gains, GLOBAL const real *step, GLOBAL const real *gap, GLOBAL real *X, GLOBAL real *U,
                                           GLOBAL real *C, GLOBAL real *D) {
  for (int t = BID * NTHR + TID; t < problems * count * shooting; t += NBLK * NTHR) {
    const int block = t % shooting, a = t / shooting % count, problem = t / (shooting * count), knots = steps + 1;
    if (!takes_part(control, fine, blocks, problem)) continue;
    const int first = block_start(steps, shooting, block), last = block_start(steps, shooting, block + 1);
    const real alpha = alphas[a];
    const size_t origin = (size_t)problem * knots, rows = ((size_t)problem * stride + a) * knots, own = ((size_t)problem * stride + a) * shooting + block;
    real now[NX], next[NX], off[ND], control_now[NU], cost[1], total = 0;
    moved_along(x + (origin + first) * NX, step + (origin + first) * NZ, alpha, now);
    for (int k = first; k < last; ++k) {
      const size_t row = origin + k;
      apart_from(now, x + row * NX, off);
      for (int j = 0; j < NU; ++j) {
        GLOBAL const real *m = gains + row * GAINS + j * (ND + 1);
        real y = FMA(alpha, m[ND], u[row * NU + j]);
        for (int i = 0; i < ND; ++i) y = FMA(m[i], off[i], y);
#if BOUNDED
        y = within(y, lower[row * NU + j], upper[row * NU + j]);
#endif
        control_now[j] = y;
        U[(rows + k) * NU + j] = y;
      }
      for (int i = 0; i < NX; ++i) X[(rows + k) * NX + i] = now[i];
      const real dt = h[row];
      knot_state(now, control_now, &dt, parameters + row * NP, next, cost);
      total += cost[0];
      if (gaps) {
        const real rest = alpha - (real)1;
        for (int i = 0; i < ND; ++i) off[i] = gap[row * ND + i];
        moved_state(next, off, &rest, now);
      } else {
        for (int i = 0; i < NX; ++i) now[i] = next[i];
      }
    }
    if (last == steps) { /* the last knot has no control */
      const real dt = h[origin + steps];
      for (int j = 0; j < NU; ++j) U[(rows + steps) * NU + j] = control_now[j] = 0;
      knot_state(now, control_now, &dt, parameters + (origin + steps) * NP, next, cost);
      total += cost[0];
      for (int i = 0; i < NX; ++i) X[(rows + steps) * NX + i] = now[i];
    } else {
      moved_along(x + (origin + last) * NX, step + (origin + last) * NZ, alpha, next);
      apart_state(now, next, off);
    }
    for (int i = 0; i < ND; ++i) D[own * ND + i] = last == steps ? (real)0 : off[i];
    C[own] = total;
  }
}

/* Chooses a step size and takes that trajectory, or raises the regularisation, a block of threads a problem. The expected fall is that of the quadratic model along the
   step; where there are defects, J + sigma |d| decides (2.11, 2.12). The cost-to-go at the start of each block goes to the end of the block before, re-centred (4.3). */
KERNEL THREADS(GROUP) solver_select(int problems, int steps, int shooting, int blocks, int count, int stride, int gaps, GLOBAL const real *options,
                                    GLOBAL const real *alphas, GLOBAL const real *fine, GLOBAL const real *g, GLOBAL const real *H, GLOBAL const real *step,
                                    GLOBAL const real *X, GLOBAL const real *U, GLOBAL const real *C, GLOBAL const real *D, GLOBAL const real *start,
                                    GLOBAL real *control, GLOBAL real *x, GLOBAL real *u, GLOBAL real *gap, GLOBAL real *end) {
  ARENA(s, SELECT_NUMBERS);
  LOCAL real *tried = s + GROUP + GROUP / 8, *sums = tried + 2 * STEP_SIZES, *word = sums + 3 * STEP_SIZES;
  for (int problem = BID; problem < problems; problem += NBLK) {
    GLOBAL real *c = control + problem * CONTROLS;
    const int status = (int)c[STATUS], knots = steps + 1;
    if (status > RUNNING) continue;
    const int ready = takes_part(control, fine, blocks, problem);
    const size_t origin = (size_t)problem * knots;
    const int places = gaps ? steps : shooting - 1; /* where there may be defects */
    real slope = 0, curve = 0, open = 0, widest = 0, size = 0;
    if (ready && status == RUNNING)
      for (int k = TID; k < knots; k += NTHR) {
        GLOBAL const real *z = step + (origin + k) * NZ, *q = H + (origin + k) * NZ * NZ;
        for (int i = 0; i < NZ; ++i) {
          real y = 0;
          for (int j = 0; j < NZ; ++j) y = FMA(q[i * NZ + j], z[j], y);
          slope = FMA(g[(origin + k) * NZ + i], z[i], slope);
          curve = FMA(y, z[i], curve);
        }
        real d = 0;
        for (int i = 0; i < ND; ++i) d += magnitude(gap[(origin + k) * ND + i]);
        open += d;
        widest = d > widest ? d : widest;
      }
    for (int t = TID; t < places * NX; t += NTHR) size += magnitude(x[(origin + block_start(steps, places + 1, t / NX + 1)) * NX + t % NX]);
    slope = group_reduce(s, slope, 0);
    curve = group_reduce(s, curve, 0);
    /* defects are differences of states: what rounding makes of them counts for nothing */
    const real rounding = options[ROUNDING] * group_reduce(s, size, 0);
    const real gap_sum = group_reduce(s, open, 0);
    widest = group_reduce(s, widest, 1);
    open = beyond(gap_sum, rounding);
    for (int a = TID; a < count; a += NTHR) {
      real J = 0, left = 0, worst = 0;
      for (int b = 0; b < shooting; ++b) {
        const size_t own = ((size_t)problem * stride + a) * shooting + b;
        real d = 0;
        for (int i = 0; i < ND; ++i) d += magnitude(D[own * ND + i]);
        J += C[own];
        left += d;
        worst = d > worst ? d : worst;
      }
      if (gaps) {
        left = magnitude((real)1 - alphas[a]) * gap_sum;
        worst = magnitude((real)1 - alphas[a]) * widest;
      }
      st(sums, 3 * a, J);
      st(sums, 3 * a + 1, beyond(left, rounding));
      st(sums, 3 * a + 2, worst);
    }
    SYNC
    if (TID == 0) {
      /* word: the step size taken or -1; whether the cost-to-go is handed over */
      int chosen = -1, handed = 0;
      const real before = c[COST];
      const int whole = (int)options[WHOLE];
      real rho = c[RHO];
      int now = RUNNING;
      if (status == BEGIN) {
        chosen = 0;
        c[COST] = ld(sums, 0);
        if (!FINITE(ld(sums, 0))) now = DIVERGED;
      } else {
        if (c[AGAIN] == 0) c[ITERATIONS_DONE] += 1;
        c[AGAIN] = 1;
        const int usable = ready && FINITE(slope) && FINITE(curve), words[] = {RUNNING, CONVERGED, STALLED, SLOW, TROUBLE};
        real sigma = c[SIGMA], expected = 0, fall = 0, cost = before, alpha = 0, left = 0;
        if (usable) {
          c[FRESH] = 0;
          handed = 1;
          if (open > 0) sigma = policy_penalty(sigma, open, slope, curve);
          for (int a = 0; a < count; ++a) {
            const real size = alphas[a], lower = before - ld(sums, 3 * a) + sigma * (open - ld(sums, 3 * a + 1));
            st(tried, 2 * a, ld(sums, 3 * a) + sigma * ld(sums, 3 * a + 1));
            st(tried, 2 * a + 1,
               places ? policy_acceptable_with_defects(lower, size, slope, sigma * open, ld(sums, 3 * a + 2), options[ARMIJO], options[DEFECT])
                      : policy_acceptable(lower, policy_expected_fall(size, slope, curve), options[ACCEPT_LOW], options[ACCEPT_HIGH]));
          }
          expected = places ? sigma * open - slope - (real)0.5 * curve : policy_expected_fall(alphas[whole], slope, curve);
          const int how = (int)options[CHOOSE];
          /* small step sizes count only where the first few are refused */
          for (int few = (int)options[FIRST_SIZES];; few = count) {
            chosen = choose(tried, few, how == BEST || (how == BALANCED && whole < few && ld(tried, 2 * whole + 1) != 0));
            if (chosen >= 0 || few == count) break;
          }
          c[SIGMA] = sigma;
        }
        if (chosen >= 0) {
          cost = ld(sums, 3 * chosen);
          fall = before - cost;
          alpha = alphas[chosen];
          left = sigma * ld(sums, 3 * chosen + 1);
        }
        /* the bent dynamics may make H_uu indefinite, or promise too much; without them it never is */
        if (CURVED && c[NEWTON] != 0 && chosen < 0 && (!usable || expected > policy_nothing(c[TOLERANCE], before, c[NEGLIGIBLE]))) {
          c[NEWTON] = 0;
        } else {
          real after[5];
          policy_judged((real)(chosen >= 0), (real)usable, expected, fall, cost, alpha, left, rho, options[RHO_LOW], options[RHO_HIGH], c[TOLERANCE],
                        c[NEGLIGIBLE], c[LOOSE], options[TELLING], options[DOUBTFUL] * magnitude(before), c[LAST_TRY], c[FLAT], c[SMALL_FALLS],
                        blocks == 1 ? options[PATIENCE] : FAR, after); /* a stale cost-to-go makes steps uneven */
          now = words[(int)after[0]];
          rho = after[1];
          c[LAST_TRY] = after[2];
          c[FLAT] = after[3];
          c[SMALL_FALLS] = after[4];
          if (chosen >= 0) {
            c[COST] = cost;
            c[AGAIN] = 0;
            c[NEWTON] = CURVED;
            c[ALPHA] = alpha;
            c[LARGEST_DEFECT] = ld(sums, 3 * chosen + 2);
            if (now == RUNNING && c[ITERATIONS_DONE] >= options[MOST]) now = ITERATIONS;
          }
        }
      }
      c[RHO] = rho;
      c[STATUS] = (real)now;
      st(word, 0, (real)chosen);
      st(word, 1, (real)handed);
    }
    SYNC
    const int chosen = (int)ld(word, 0), handed = (int)ld(word, 1);
    const size_t rows = ((size_t)problem * stride + (chosen < 0 ? 0 : chosen)) * knots;
    if (handed)
      for (int t = TID; t < (blocks - 1) * VALUE; t += NTHR) {
        const int b = t / VALUE, i = t % VALUE, k = block_start(steps, blocks, b + 1);
        GLOBAL const real *v = start + ((size_t)problem * blocks + b + 1) * VALUE;
        real y = v[i];
        if (i >= ND * ND && chosen >= 0) {
          real to[NX], off[ND];
          for (int j = 0; j < NX; ++j) to[j] = X[(rows + k) * NX + j];
          apart_from(to, x + (origin + k) * NX, off);
          for (int j = 0; j < ND; ++j) y = FMA(v[(i - ND * ND) * ND + j], off[j], y);
        }
        end[((size_t)problem * blocks + b) * VALUE + i] = y;
      }
    SYNC_ALL /* everyone has seen the trajectory that was */
    if (chosen >= 0) {
      for (int t = TID; t < knots * NX; t += NTHR) x[origin * NX + t] = X[rows * NX + t];
      for (int t = TID; t < knots * NU; t += NTHR) u[origin * NU + t] = U[rows * NU + t];
      for (int t = TID; t < steps * ND && (gaps || status == BEGIN); t += NTHR) {
        const real y = ((real)1 - alphas[chosen]) * gap[origin * ND + t];
        gap[origin * ND + t] = status == BEGIN || magnitude(y) < CLOSED_GAP ? (real)0 : y;
      }
      for (int t = TID; t < shooting * ND && !gaps && status != BEGIN; t += NTHR) {
        const int b = t / ND, k = block_start(steps, shooting, b + 1) - 1;
        gap[(origin + k) * ND + t % ND] = D[((size_t)problem * stride + chosen) * shooting * ND + t];
      }
    }
  }
}
