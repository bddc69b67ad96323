/* A row of the Schur complement from derivatives in global memory, a block of threads a knot: where those of a knot do not fit shared memory, or are not computed by blocks. */
KERNEL THREADS(GROUP) solver_schur(int problems, int knots, GLOBAL const real *control, GLOBAL const real *origin, GLOBAL const real *x,
                                   GLOBAL const real *lambda, GLOBAL const real *gap, GLOBAL const real *F, GLOBAL const real *g, GLOBAL const real *H,
                                   GLOBAL real *d, GLOBAL real *inverse, GLOBAL real *before, GLOBAL real *Q_inverse, GLOBAL real *R_inverse, GLOBAL real *gamma,
                                   GLOBAL real *reduced, GLOBAL real *fine) {
  ARENA(s, SCHUR_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    const int problem = item / knots, k = item % knots;
    if ((int)control[problem * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item, last = k ? row - 1 : row;
    GLOBAL const real *h = H + row * NZ * NZ, *h_last = H + last * NZ * NZ;
    for (int t = TID; t < SQUARE; t += NTHR) {
      st(s, AT_HERE + t, h[t / ND * NZ + t % ND]);
      st(s, AT_THERE + t, h_last[t / ND * NZ + t % ND]);
    }
    for (int t = TID; t < NU * NU; t += NTHR) st(s, AT_R + t, h_last[(ND + t / NU) * NZ + ND + t % NU]);
    if (k) {
      for (int i = TID; i < ND; i += NTHR) st(s, AT_DEFECT + i, gap[last * ND + i]);
    } else if (TID == 0) {
      real start[NX], off[ND];
      for (int i = 0; i < NX; ++i) start[i] = origin[problem * NX + i];
      apart_from(start, x + row * NX, off);
      for (int i = 0; i < ND; ++i) st(s, AT_DEFECT + i, off[i]);
    }
    SYNC
    schur_row(s, F + last * ND * NZ, g + last * NZ, g + row * NZ, k, k == knots - 1, row, control[problem * CONTROLS + RHO], lambda, d, inverse, before,
              Q_inverse, R_inverse, gamma, reduced, fine);
  }
}
