/* Conjugate gradients with a block a knot in one launch: its blocks run at once, and wait for the others of their problem. */
#ifndef MEET_BLOCKS
/* A barrier of blocks that run at once, which leaves everything as it was: the last one to come turns the highest bit of the number. */
DEVICE void meet_blocks(unsigned *place, int first, int many) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned before = atomicAdd(place, first ? 0x80000000u - (unsigned)(many - 1) : 1u);
    while (((before ^ *(volatile unsigned *)place) & 0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
#define MEET_BLOCKS(place, first, many) meet_blocks((unsigned *)(place), first, many);
#endif
/* `first`: the problem of the first block */
KERNEL THREADS(KNOT_GROUP) solver_pcg_knots(int first, GLOBAL const real *options, GLOBAL const real *fine, GLOBAL const real *F, GLOBAL const real *W,
                                            GLOBAL const real *phi, GLOBAL const real *gamma, GLOBAL real *control, GLOBAL real *lambda, GLOBAL real *delta,
                                            GLOBAL real *conditioned, GLOBAL real *multiplied, GLOBAL real *falls, GLOBAL real *curvatures, GLOBAL int *meetings) {
  ARENA(s, PCG_KNOTS_NUMBERS);
  const int problem = first + BID / KNOTS, k = BID % KNOTS;
  const size_t row = (size_t)problem * KNOTS + k;
  if ((int)control[problem * CONTROLS + STATUS] != RUNNING || !takes_part(control, fine, KNOTS, problem)) return;
  bring_dynamics(s, F, W, row, k);
  bring_preconditioner(s, phi, row);
  begin_knot(s, gamma, row, k);
  for (;;) {
    SYNC
    PCG_PRECONDITION
    SYNC
    hand_on(s, conditioned, falls, problem, k);
    MEET_BLOCKS(meetings + problem, k == 0, KNOTS)
    bring_handed_on(s, conditioned, falls, problem, k);
    SYNC
    PCG_DIRECTION
    SYNC
    if (ld(s, AT_NUMBERS + PCG_STOP) > 0) break;
    hand_on(s, multiplied, curvatures, problem, k);
    MEET_BLOCKS(meetings + problem, k == 0, KNOTS)
    bring_handed_on(s, multiplied, curvatures, problem, k);
    SYNC
    PCG_STEP
  }
  end_knot(s, control, lambda, delta, row, problem, k);
}
