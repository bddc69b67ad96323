/* A knot's parts of the Schur complement from derivatives in global memory: where those of a knot do not fit shared memory, or are not computed by blocks. Also the defects. */
KERNEL THREADS(GROUP) solver_schur(int problems, int knots, GLOBAL const real *options, GLOBAL const real *control, GLOBAL const real *origin,
                                   GLOBAL const real *x, GLOBAL const real *lambda, GLOBAL const real *gap, GLOBAL const real *F, GLOBAL const real *g,
                                   GLOBAL const real *H, GLOBAL real *defects, GLOBAL real *W, GLOBAL real *R_inverse, GLOBAL real *theta,
                                   GLOBAL real *own, GLOBAL real *ahead, GLOBAL real *left, GLOBAL real *fine) {
  ARENA(s, SCHUR_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    const int problem = item / knots, k = item % knots, last = k == knots - 1;
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item;
    for (int i = TID; i < ND && !last; i += NTHR) defects[(row + 1) * ND + i] = gap[row * ND + i];
    if (TID == 0) {
      st(s, AT_END, (real)last);
      if (k == 0) {
        real start[NX], off[ND];
        for (int i = 0; i < NX; ++i) start[i] = origin[problem * NX + i];
        apart_from(start, x + row * NX, off);
        for (int i = 0; i < ND; ++i) defects[row * ND + i] = off[i];
      }
    }
    SYNC
    SCHUR_KNOT
    SYNC
  }
}
