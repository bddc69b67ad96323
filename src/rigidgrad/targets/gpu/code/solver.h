/* Solvers of trajectories. A state has NX numbers and its tangent ND; NU controls, NZ = ND + NU, NP parameters of a knot; a problem has steps + 1 knots, and the knots of all problems are rows of one
   array. A knot's F (ND, NZ) is [A B], g (NZ) and H (NZ, NZ) are the gradient and the Hessian of its cost, in tangents. The threads of a block talk through shared memory alone;
   what one kernel writes to global memory for others, the next kernel reads. */
#define FINITE(x) ((x) - (x) == 0)

DEVICE real magnitude(real x) { return x < 0 ? -x : x; }
DEVICE real within(real x, real low, real high) { return x < low ? low : high < x ? high : x; }
DEVICE real beyond(real x, real least) { return x > least ? x - least : (real)0; }

/* where block b of the knots begins; the longer ones come first */
DEVICE int block_start(int steps, int blocks, int b) {
  const int more = steps % blocks;
  return b * (steps / blocks) + (b < more ? b : more);
}

/* Sums a number of each thread, or finds the largest, for all of them; s has GROUP + GROUP / 8 places. */
DEVICE real group_reduce(LOCAL real *s, real x, int largest) {
  st(s, TID, x);
  SYNC
  if (TID < GROUP / 8) {
    real y = ld(s, 8 * TID);
    for (int i = 1; i < 8; ++i) {
      const real other = ld(s, 8 * TID + i);
      y = largest ? (y < other ? other : y) : y + other;
    }
    st(s, GROUP + TID, y);
  }
  SYNC
  real y = ld(s, GROUP);
  for (int i = 1; i < GROUP / 8; ++i) {
    const real other = ld(s, GROUP + i);
    y = largest ? (y < other ? other : y) : y + other;
  }
  return y;
}

/* whether a problem takes part: it begins, or it runs and its backward pass came through */
DEVICE int takes_part(GLOBAL const real *control, GLOBAL const real *fine, int blocks, int problem) {
  const int status = (int)control[problem * CONTROLS + STATUS];
  if (status != RUNNING) return status == BEGIN;
  for (int b = 0; b < blocks; ++b)
    if (fine[problem * blocks + b] == 0) return 0;
  return 1;
}

/* Of the step sizes that are fine the best or the largest; -1 where there is none. Two numbers of each in s: its merit, and 1 where it is fine. */
DEVICE int choose(LOCAL const real *s, int count, int best) {
  int chosen = -1;
  for (int a = 0; a < count; ++a)
    if (policy_takes_over(ld(s, 2 * a + 1), ld(s, 2 * a), (real)chosen, ld(s, chosen < 0 ? 0 : 2 * chosen), (real)best) != 0) chosen = a;
  return chosen;
}

