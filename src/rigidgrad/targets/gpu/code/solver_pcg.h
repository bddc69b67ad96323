/* Conjugate gradients (Plancher 2022, Algorithm 5) by `kernels/pcg.py`, a block of threads a problem: the vectors that neighbours read are in shared memory, and a batch of
   problems fills the device. With a block a knot: `solver_pcg_knots.h`. The change of the multipliers is looked for: what is left of the gradient is small near the optimum, so that their own rounding is not in the step. */
KERNEL THREADS(GROUP) solver_pcg(int problems, GLOBAL const real *options, GLOBAL const real *fine, GLOBAL const real *F, GLOBAL const real *W,
                                 GLOBAL const real *phi, GLOBAL const real *gamma, GLOBAL real *control, GLOBAL real *lambda, GLOBAL real *delta,
                                 GLOBAL real *works) {
  ARENA(s, PCG_NUMBERS);
  (void)works; /* vectors for which there is no room */
  for (int problem = BID; problem < problems; problem += NBLK) {
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING || !takes_part(control, fine, KNOTS, problem)) continue;
    CONJUGATE_GRADIENTS
    if (TID == 0) { /* who has these numbers */
      control[problem * CONTROLS + SOLVED] = (real)(magnitude(ld(s, 0)) <= ld(s, 1));
      control[problem * CONTROLS + LINEAR_ITERATIONS] += ld(s, 2);
    }
    SYNC
  }
}
