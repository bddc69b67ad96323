/* The Schur complement of the direct method and its preconditioner (Plancher 2022, Algorithm 6), a block of threads a knot, by the kernels of `kernels/schur.py`. What brings a
   knot's matrices is in files of its own: `solver_fused.h` computes them, `solver_split.h` reads them. */
#define SQUARE (ND * ND)

/* A row from its knot's parts and those of the knot before. */
KERNEL THREADS(GROUP) solver_row(int problems, int knots, GLOBAL const real *control, GLOBAL const real *defects, GLOBAL const real *W, GLOBAL const real *theta,
                                 GLOBAL const real *own, GLOBAL const real *ahead, GLOBAL real *gamma, GLOBAL real *phi, GLOBAL real *fine) {
  ARENA(s, ROW_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    if ((int)control[item / knots * CONTROLS + STATUS] != RUNNING) continue;
    const size_t row = item;
    SCHUR_ROW
    SYNC
  }
}

/* The blocks of the symmetric stair beside the diagonal. */
KERNEL THREADS(GROUP) solver_stair(int problems, int knots, GLOBAL const real *control, GLOBAL const real *fine, GLOBAL const real *W, GLOBAL real *phi) {
  ARENA(s, STAIR_NUMBERS);
  for (int item = BID; item < problems * knots; item += NBLK) {
    if (item % knots == 0 || !takes_part(control, fine, knots, item / knots)) continue;
    const size_t row = item;
    SCHUR_STAIR
    SYNC
  }
}
