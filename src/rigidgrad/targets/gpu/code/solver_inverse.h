/* One pivot of the inversion of a symmetric positive definite matrix by Gauss and Jordan, from a to b. Loops over matrices are rolled, or the compiler takes half as many
   registers again. */
DEVICE void pivot_step(LOCAL const real *a, LOCAL real *b, int n, int pivot) {
  const real r = (real)1 / ld(a, pivot * n + pivot);
  ROLLED
  for (int t = TID; t < n * n; t += NTHR) {
    const int i = t / n, j = t % n;
    real y = ld(a, pivot * n + j) * r;
    if (i == pivot)
      y = j == pivot ? r : y;
    else
      y = j == pivot ? -ld(a, i * n + pivot) * r : FMA(-ld(a, i * n + pivot), y, ld(a, t));
    st(b, t, y);
  }
}
