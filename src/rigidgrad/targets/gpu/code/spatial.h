/* Spatial algebra in registers: motions and forces are [angular, linear]; a transform from parent to child is its rotation E by rows and the child's origin
   in the parent, 12 numbers; an inertia is m, h, (Ixx Ixy Iyy Ixz Iyz Izz); an articulated one A (as I), B by rows, C (as I), 21 numbers. */
DEVICE void ldv(LOCAL const real *s, int a, real *x, int n) {
  UNROLL
  for (int k = 0; k + 1 < n; k += 2) ld2(s, a + k, x + k);
  if (n % 2) x[n - 1] = ld(s, a + n - 1);
}
DEVICE void stv(LOCAL real *s, int a, const real *x, int n) {
  UNROLL
  for (int k = 0; k + 1 < n; k += 2) st2(s, a + k, x + k);
  if (n % 2) st(s, a + n - 1, x[n - 1]);
}
DEVICE void ldk(FROM const real *table, int a, real *x, int n) {
  UNROLL
  for (int k = 0; k < n; ++k) x[k] = table[a + k];
}
DEVICE void add6(real *r, const real *x) {
  UNROLL
  for (int k = 0; k < 6; ++k) r[k] += x[k];
}
DEVICE void cross3_add(const real *a, const real *b, real *r) {
  r[0] += a[1] * b[2] - a[2] * b[1];
  r[1] += a[2] * b[0] - a[0] * b[2];
  r[2] += a[0] * b[1] - a[1] * b[0];
}
/* r += m × n */
DEVICE void cross_motion_add(const real *m, const real *n, real *r) {
  cross3_add(m, n, r);
  cross3_add(m, n + 3, r + 3);
  cross3_add(m + 3, n, r + 3);
}
/* r += m ×* f */
DEVICE void cross_force_add(const real *m, const real *f, real *r) {
  cross3_add(m, f, r);
  cross3_add(m + 3, f + 3, r);
  cross3_add(m, f + 3, r + 3);
}
DEVICE void rotate(const real *E, const real *x, real *r) {
  UNROLL
  for (int k = 0; k < 3; ++k) r[k] = E[3 * k] * x[0] + E[3 * k + 1] * x[1] + E[3 * k + 2] * x[2];
}
DEVICE void rotate_back(const real *E, const real *x, real *r) {
  UNROLL
  for (int k = 0; k < 3; ++k) r[k] = E[k] * x[0] + E[3 + k] * x[1] + E[6 + k] * x[2];
}
/* r = X m, parent to child */
DEVICE void x_motion(const real *X, const real *m, real *r) {
  const real *p = X + 9;
  const real u[3] = {m[3] - (p[1] * m[2] - p[2] * m[1]), m[4] - (p[2] * m[0] - p[0] * m[2]), m[5] - (p[0] * m[1] - p[1] * m[0])};
  rotate(X, m, r);
  rotate(X, u, r + 3);
}
/* r = Xᵀ f, child to parent */
DEVICE void x_force_back(const real *X, const real *f, real *r) {
  rotate_back(X, f, r);
  rotate_back(X, f + 3, r + 3);
  cross3_add(X + 9, r + 3, r);
}
/* r = X⁻¹ m, child to parent */
DEVICE void x_motion_back(const real *X, const real *m, real *r) {
  rotate_back(X, m, r);
  rotate_back(X, m + 3, r + 3);
  cross3_add(X + 9, r, r + 3);
}
/* a after b: R = a b */
DEVICE void x_compose(const real *a, const real *b, real *r) {
  UNROLL
  for (int i = 0; i < 3; ++i) {
    UNROLL
    for (int j = 0; j < 3; ++j) r[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
  }
  rotate_back(b, a + 9, r + 9);
  UNROLL
  for (int k = 9; k < 12; ++k) r[k] += b[k];
}
DEVICE void symmetric_times(const real *I, const real *x, real *r) {
  r[0] = I[0] * x[0] + I[1] * x[1] + I[3] * x[2];
  r[1] = I[1] * x[0] + I[2] * x[1] + I[4] * x[2];
  r[2] = I[3] * x[0] + I[4] * x[1] + I[5] * x[2];
}
/* r = I m: [I w + h × v, m v - h × w] */
DEVICE void inertia_times(const real *I, const real *m, real *r) {
  const real *h = I + 1;
  symmetric_times(I + 4, m, r);
  cross3_add(h, m + 3, r);
  r[3] = I[0] * m[3] - (h[1] * m[2] - h[2] * m[1]);
  r[4] = I[0] * m[4] - (h[2] * m[0] - h[0] * m[2]);
  r[5] = I[0] * m[5] - (h[0] * m[1] - h[1] * m[0]);
}
/* r = Eᵀ S E for symmetric S, six numbers */
DEVICE void turn_symmetric_back(const real *E, const real *S, real *r) {
  real T[9];
  UNROLL
  for (int j = 0; j < 3; ++j) { /* T = S E */
    const real c[3] = {E[j], E[3 + j], E[6 + j]};
    real d[3];
    symmetric_times(S, c, d);
    T[j] = d[0];
    T[3 + j] = d[1];
    T[6 + j] = d[2];
  }
  r[0] = E[0] * T[0] + E[3] * T[3] + E[6] * T[6];
  r[1] = E[0] * T[1] + E[3] * T[4] + E[6] * T[7];
  r[2] = E[1] * T[1] + E[4] * T[4] + E[7] * T[7];
  r[3] = E[0] * T[2] + E[3] * T[5] + E[6] * T[8];
  r[4] = E[1] * T[2] + E[4] * T[5] + E[7] * T[8];
  r[5] = E[2] * T[2] + E[5] * T[5] + E[8] * T[8];
}
/* r = Xᵀ I X of a rigid body */
DEVICE void x_inertia_back(const real *X, const real *I, real *r) {
  const real *p = X + 9;
  real h[3], g[3], t[6];
  rotate_back(X, I + 1, h);
  UNROLL
  for (int k = 0; k < 3; ++k) g[k] = h[k] + I[0] * p[k];
  turn_symmetric_back(X, I + 4, t);
  /* parallel axes: -p× h× - g× p× */
  const real xx = p[0] * h[0] + g[0] * p[0], yy = p[1] * h[1] + g[1] * p[1], zz = p[2] * h[2] + g[2] * p[2];
  r[0] = I[0];
  r[1] = g[0];
  r[2] = g[1];
  r[3] = g[2];
  r[4] = t[0] + yy + zz;
  r[5] = t[1] - h[0] * p[1] - p[0] * g[1];
  r[6] = t[2] + xx + zz;
  r[7] = t[3] - h[0] * p[2] - p[0] * g[2];
  r[8] = t[4] - h[1] * p[2] - p[1] * g[2];
  r[9] = t[5] + xx + yy;
}
/* r = Iᴬ m */
DEVICE void articulated_times(const real *I, const real *m, real *r) {
  real t[3];
  symmetric_times(I, m, r);
  rotate(I + 6, m + 3, t);
  UNROLL
  for (int k = 0; k < 3; ++k) r[k] += t[k];
  symmetric_times(I + 15, m + 3, r + 3);
  rotate_back(I + 6, m, t);
  UNROLL
  for (int k = 0; k < 3; ++k) r[3 + k] += t[k];
}
/* I -= u uᵀ d */
DEVICE void articulated_minus(real *I, const real *u, real d) {
  const real w[6] = {u[0] * d, u[1] * d, u[2] * d, u[3] * d, u[4] * d, u[5] * d};
  UNROLL
  for (int h = 0; h < 2; ++h) {
    real *S = I + 15 * h;
    const real *a = u + 3 * h, *b = w + 3 * h;
    S[0] -= a[0] * b[0];
    S[1] -= a[0] * b[1];
    S[2] -= a[1] * b[1];
    S[3] -= a[0] * b[2];
    S[4] -= a[1] * b[2];
    S[5] -= a[2] * b[2];
  }
  UNROLL
  for (int i = 0; i < 3; ++i) {
    UNROLL
    for (int j = 0; j < 3; ++j) I[6 + 3 * i + j] -= u[i] * w[3 + j];
  }
}
/* r = Xᵀ Iᴬ X */
DEVICE void x_articulated_back(const real *X, const real *I, real *r) {
  const real *p = X + 9, *B = I + 6;
  real T[9], b[9], c[6];
  turn_symmetric_back(X, I + 15, c);
  UNROLL
  for (int i = 0; i < 3; ++i) { /* T = B E, b = Eᵀ T */
    UNROLL
    for (int j = 0; j < 3; ++j) T[3 * i + j] = B[3 * i] * X[j] + B[3 * i + 1] * X[3 + j] + B[3 * i + 2] * X[6 + j];
  }
  UNROLL
  for (int i = 0; i < 3; ++i) {
    UNROLL
    for (int j = 0; j < 3; ++j) b[3 * i + j] = X[i] * T[j] + X[3 + i] * T[3 + j] + X[6 + i] * T[6 + j];
  }
  turn_symmetric_back(X, I, r);
  /* with P = p×: B' = b + P c, A' = a + P bᵀ + (P B'ᵀ)ᵀ */
  const real C[9] = {c[0], c[1], c[3], c[1], c[2], c[4], c[3], c[4], c[5]};
  real *N = r + 6;
  UNROLL
  for (int j = 0; j < 3; ++j) {
    N[j] = b[j] + p[1] * C[6 + j] - p[2] * C[3 + j];
    N[3 + j] = b[3 + j] + p[2] * C[j] - p[0] * C[6 + j];
    N[6 + j] = b[6 + j] + p[0] * C[3 + j] - p[1] * C[j];
  }
  /* (P Yᵀ)[i][j] = (p × row j of Y)[i] */
  r[0] += p[1] * b[2] - p[2] * b[1] + (p[1] * N[2] - p[2] * N[1]);
  r[1] += p[2] * b[0] - p[0] * b[2] + (p[1] * N[5] - p[2] * N[4]);
  r[2] += p[2] * b[3] - p[0] * b[5] + (p[2] * N[3] - p[0] * N[5]);
  r[3] += p[0] * b[1] - p[1] * b[0] + (p[1] * N[8] - p[2] * N[7]);
  r[4] += p[0] * b[4] - p[1] * b[3] + (p[2] * N[6] - p[0] * N[8]);
  r[5] += p[0] * b[7] - p[1] * b[6] + (p[0] * N[7] - p[1] * N[6]);
  UNROLL
  for (int k = 0; k < 6; ++k) r[15 + k] = c[k];
}
