/* A knot's controls in the backward pass: gains from the rows of the controls of Q, within bounds. */
#define FAR ((real)1e30) /* a bound that does not hold */
#define SWITCHES 10 /* times a set of controls at their bounds may change at a knot */

/* Gauss-Jordan on the rows of the controls, without touching a pivot's own column: then nobody writes what others read. Whether all pivots were positive. */
DEVICE int eliminate(LOCAL real *U, LOCAL const real *diagonal) {
  int ok = 1;
  for (int j = 0; j < NU; ++j) {
    const real pivot = ld(U, j * (NZ + 1) + ND + j);
    if (!(pivot > SINGULAR * magnitude(ld(diagonal, j)))) ok = 0;
    for (int t = TID; t < NU * (NZ + 1); t += NTHR) {
      const int i = t / (NZ + 1), l = t % (NZ + 1);
      if (i != j && (l < ND || l > ND + j)) st(U, t, FMA(-ld(U, i * (NZ + 1) + ND + j) / pivot, ld(U, j * (NZ + 1) + l), ld(U, t)));
    }
    SYNC
  }
  return ok;
}

#if BOUNDED
/* The rows with controls held at their bounds, in E: those neither feed back nor move by more than to the bound. A set that is found wrong is changed, a few times: a control that
   steps over its bound is held, and one is let go where the cost falls inwards. `box` has the room to the lower and to the upper bounds, then which are held (-1, 0, 1) and
   which are to be. */
DEVICE int eliminate_within(LOCAL const real *U, LOCAL real *E, LOCAL real *box, LOCAL const real *diagonal) {
  LOCAL real *low = box, *high = low + NU, *held = high + NU, *after = held + NU;
  for (int turn = 1;; ++turn) {
    for (int t = TID; t < NU * (NZ + 1); t += NTHR) {
      const int i = t / (NZ + 1), l = t % (NZ + 1);
      const real own = ld(held, i), one = magnitude(ld(diagonal, i)) + (real)1;
      real y = ld(U, t);
      if (own != 0) {
        y = l == ND + i ? one : l == NZ ? -one * ld(own > 0 ? high : low, i) : (real)0;
      } else if (l == NZ) {
        for (int c = 0; c < NU; ++c)
          if (ld(held, c) != 0) y = FMA(ld(U, i * (NZ + 1) + ND + c), ld(ld(held, c) > 0 ? high : low, c), y);
      } else if (l >= ND && ld(held, l - ND) != 0) {
        y = 0;
      }
      st(E, t, y);
    }
    SYNC
    const int ok = eliminate(E, diagonal);
    for (int i = TID; i < NU; i += NTHR) {
      const real own = ld(held, i), kappa = -ld(E, i * (NZ + 1) + NZ) / ld(E, i * (NZ + 1) + ND + i);
      real slope = ld(U, i * (NZ + 1) + NZ);
      for (int c = 0; c < NU; ++c) slope = FMA(ld(U, i * (NZ + 1) + ND + c), -ld(E, c * (NZ + 1) + NZ) / ld(E, c * (NZ + 1) + ND + c), slope);
      const int up = own != 0 ? own > 0 && slope < 0 : kappa > ld(high, i), down = own != 0 ? own < 0 && slope > 0 : kappa < ld(low, i);
      st(after, i, (real)(up - down));
    }
    SYNC
    int changed = 0;
    for (int i = 0; i < NU; ++i) changed = changed || ld(after, i) != ld(held, i);
    if (!changed || !ok || turn == SWITCHES) return ok;
    SYNC
    for (int i = TID; i < NU; i += NTHR) st(held, i, ld(after, i));
    SYNC
  }
}
#endif
