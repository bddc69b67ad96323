/* Conjugate gradients with a block a knot, a launch for each half of an iteration: where blocks cannot wait for each other. What a knot keeps is in global memory meanwhile. */
/* `open` of a problem is 1 until its iterations have ended; a problem that takes no part has ended before */
KERNEL THREADS(KNOT_GROUP) solver_pcg_begin(int problems, GLOBAL const real *fine, GLOBAL const real *phi, GLOBAL const real *gamma, GLOBAL const real *control,
                                            GLOBAL real *conditioned, GLOBAL real *falls, GLOBAL real *kept, GLOBAL real *open) {
  ARENA(s, PCG_KNOTS_NUMBERS);
  for (int item = BID; item < problems * KNOTS; item += NBLK) {
    const int problem = item / KNOTS, k = item % KNOTS;
    const int part = (int)control[problem * CONTROLS + STATUS] == RUNNING && takes_part(control, fine, KNOTS, problem);
    if (k == 0 && TID == 0) open[problem] = (real)part;
    bring_preconditioner(s, phi, item);
    begin_knot(s, gamma, item, k);
    SYNC
    if (TID == 0) st(s, AT_NUMBERS + PCG_STOP, (real)!part);
    PCG_PRECONDITION
    SYNC
    hand_on(s, conditioned, falls, problem, k);
    for (int t = TID; t < KEPT; t += NTHR) kept[(size_t)item * KEPT + t] = ld(s, AT_KEPT + t);
    SYNC
  }
}
KERNEL THREADS(KNOT_GROUP) solver_pcg_direction(int problems, GLOBAL const real *options, GLOBAL const real *F, GLOBAL const real *W, GLOBAL real *control,
                                                GLOBAL real *lambda, GLOBAL real *delta, GLOBAL const real *conditioned, GLOBAL const real *falls,
                                                GLOBAL real *multiplied, GLOBAL real *curvatures, GLOBAL real *kept, GLOBAL real *open) {
  ARENA(s, PCG_KNOTS_NUMBERS);
  for (int item = BID; item < problems * KNOTS; item += NBLK) {
    const int problem = item / KNOTS, k = item % KNOTS;
    if (kept[(size_t)item * KEPT + AT_NUMBERS - AT_KEPT + PCG_STOP] > 0) continue;
    bring(s + AT_KEPT, kept + (size_t)item * KEPT, KEPT, 1);
    bring_dynamics(s, F, W, item, k);
    bring_handed_on(s, conditioned, falls, problem, k);
    SYNC
    PCG_DIRECTION
    SYNC
    if (ld(s, AT_NUMBERS + PCG_STOP) > 0) {
      end_knot(s, control, lambda, delta, item, problem, k);
      if (k == 0 && TID == 0) open[problem] = 0;
    } else
      hand_on(s, multiplied, curvatures, problem, k);
    for (int t = TID; t < KEPT; t += NTHR) kept[(size_t)item * KEPT + t] = ld(s, AT_KEPT + t);
    SYNC
  }
}
KERNEL THREADS(KNOT_GROUP) solver_pcg_step(int problems, GLOBAL const real *phi, GLOBAL const real *multiplied, GLOBAL const real *curvatures,
                                           GLOBAL real *conditioned, GLOBAL real *falls, GLOBAL real *kept) {
  ARENA(s, PCG_KNOTS_NUMBERS);
  for (int item = BID; item < problems * KNOTS; item += NBLK) {
    const int problem = item / KNOTS, k = item % KNOTS;
    if (kept[(size_t)item * KEPT + AT_NUMBERS - AT_KEPT + PCG_STOP] > 0) continue;
    bring(s + AT_KEPT, kept + (size_t)item * KEPT, KEPT, 1);
    bring_preconditioner(s, phi, item);
    bring_handed_on(s, multiplied, curvatures, problem, k);
    SYNC
    PCG_STEP
    SYNC
    PCG_PRECONDITION
    SYNC
    hand_on(s, conditioned, falls, problem, k);
    for (int t = TID; t < KEPT; t += NTHR) kept[(size_t)item * KEPT + t] = ld(s, AT_KEPT + t);
    SYNC
  }
}
