/* The operations of block kernels. One thread does one: e[] are its operands' places in shared memory s and indices of constants, then those of its results.
   Everything is read before anything is written, so that a result may take the place of an operand of its size. Constants of the robot: K_FIXED (12 a body, placement of
   its joint), K_INERTIA (10 a body, then zeros), K_S (6 a freedom, the joint's axis), K_PITCH, K_ARMATURE, K_FOLLOWS (2 a body, what a mimic joint makes of its master). Flag z: every S is the unit rotation about z. */

/* S_k · f and S_k x */
DEVICE real along(int z, int k, const real *f) {
  if (z) return f[2];
  real r = K_S[6 * k] * f[0];
  UNROLL
  for (int c = 1; c < 6; ++c) r += K_S[6 * k + c] * f[c];
  return r;
}

/* e = q of a master, body → q of the joint that follows it */
DEVICE void follow(LOCAL real *s, const int *e) { st(s, e[2], K_FOLLOWS[2 * e[1]] * ld(s, e[0]) + K_FOLLOWS[2 * e[1] + 1]); }

/* --- joints: e = q, body, X ------------------------------------------------------------------------------------------------------------- */

DEVICE void place(const real *E, const real *p, const real *F, LOCAL real *s, int X) {
  real J[12], R[12];
  UNROLL
  for (int k = 0; k < 9; ++k) J[k] = E[k];
  UNROLL
  for (int k = 0; k < 3; ++k) J[9 + k] = p[k];
  x_compose(J, F, R);
  stv(s, X, R, 12);
}
DEVICE void turn(LOCAL const real *s, int q, real *F) {
  real si, co;
  SINCOS(ld(s, q), &si, &co);
  UNROLL
  for (int k = 0; k < 3; ++k) {
    const real a = F[k], b = F[3 + k];
    F[k] = co * a + si * b;
    F[3 + k] = co * b - si * a;
  }
}
DEVICE void joint_revolute(LOCAL real *s, const int *e) {
  real F[12];
  ldk(K_FIXED, 12 * e[1], F, 12);
  turn(s, e[0], F);
  stv(s, e[2], F, 12);
}
DEVICE void joint_helical(LOCAL real *s, const int *e) {
  real F[12];
  ldk(K_FIXED, 12 * e[1], F, 12);
  turn(s, e[0], F);
  const real x = K_PITCH[e[1]] * ld(s, e[0]);
  UNROLL
  for (int k = 0; k < 3; ++k) F[9 + k] += x * F[6 + k];
  stv(s, e[2], F, 12);
}
DEVICE void joint_prismatic(LOCAL real *s, const int *e) {
  real F[12];
  ldk(K_FIXED, 12 * e[1], F, 12);
  const real x = ld(s, e[0]);
  UNROLL
  for (int k = 0; k < 3; ++k) F[9 + k] += x * F[6 + k];
  stv(s, e[2], F, 12);
}
DEVICE void quaternion_back(real x, real y, real z, real w, real *E) { /* Rᵀ */
  const real x2 = x + x, y2 = y + y, z2 = z + z;
  const real xx = x2 * x, yy = y2 * y, zz = z2 * z, xy = x2 * y, xz = x2 * z, yz = y2 * z, wx = w * x2, wy = w * y2, wz = w * z2;
  E[0] = 1 - (yy + zz);
  E[1] = xy + wz;
  E[2] = xz - wy;
  E[3] = xy - wz;
  E[4] = 1 - (xx + zz);
  E[5] = yz + wx;
  E[6] = xz + wy;
  E[7] = yz - wx;
  E[8] = 1 - (xx + yy);
}
DEVICE void joint_spherical(LOCAL real *s, const int *e) {
  const real p[3] = {0, 0, 0};
  real F[12], E[9];
  ldk(K_FIXED, 12 * e[1], F, 12);
  quaternion_back(ld(s, e[0]), ld(s, e[0] + 1), ld(s, e[0] + 2), ld(s, e[0] + 3), E);
  place(E, p, F, s, e[2]);
}
DEVICE void joint_floating(LOCAL real *s, const int *e) {
  const real p[3] = {ld(s, e[0]), ld(s, e[0] + 1), ld(s, e[0] + 2)};
  real F[12], E[9];
  ldk(K_FIXED, 12 * e[1], F, 12);
  quaternion_back(ld(s, e[0] + 3), ld(s, e[0] + 4), ld(s, e[0] + 5), ld(s, e[0] + 6), E);
  place(E, p, F, s, e[2]);
}
DEVICE void joint_planar(LOCAL real *s, const int *e) {
  const real p[3] = {ld(s, e[0]), ld(s, e[0] + 1), 0}, c = ld(s, e[0] + 2), t = ld(s, e[0] + 3);
  const real E[9] = {c, t, 0, -t, c, 0, 0, 0, 1};
  real F[12];
  ldk(K_FIXED, 12 * e[1], F, 12);
  place(E, p, F, s, e[2]);
}

/* e = place → place */
DEVICE void copy(LOCAL real *s, const int *e) { st(s, e[1], ld(s, e[0])); }
/* e = place, over a list → the sum */
DEVICE void total(LOCAL real *s, const int *e, FROM const unsigned short *list) {
  real x = 0;
  ROLLED
  for (int k = e[1]; k < e[1] + e[2]; ++k) x += ld(s, list[k]);
  st(s, e[0], x);
}

/* --- inverse of the mass matrix: Plancher 2022, Algorithm 11, with U and D inside the level loop as in Algorithm 9; one freedom at a time ---------- */

/* e = X, body, k → P = Xᵀ (Iᴬ - U D⁻¹ Uᵀ) X, (U, D⁻¹), F = Xᵀ U D⁻¹, over a list of the children's P. Flags: X is not one; k has a parent, else the results are
   (U, D⁻¹), the entry of M⁻¹, and the column S D⁻¹ of accelerations; columns of M⁻¹ are wanted at all. */
DEVICE void articulated(LOCAL real *s, const int *e, int z, int moves, int hangs, int columns, FROM const unsigned short *list) {
  const int after = 3 + hangs + 1 + (columns ? 2 - hangs : 0), start = e[after], count = e[after + 1];
  real I[21], U[6], r[21], b[10];
  ldk(K_INERTIA, 10 * e[1], b, 10);
  UNROLL
  for (int k = 0; k < 6; ++k) I[k] = b[4 + k];
  I[6] = 0, I[7] = -b[3], I[8] = b[2];
  I[9] = b[3], I[10] = 0, I[11] = -b[1];
  I[12] = -b[2], I[13] = b[1], I[14] = 0;
  I[15] = I[17] = I[20] = b[0];
  I[16] = I[18] = I[19] = 0;
  ROLLED
  for (int k = start; k < start + count; ++k) {
    ldv(s, list[k], r, 21);
    UNROLL
    for (int c = 0; c < 21; ++c) I[c] += r[c];
  }
  if (z) {
    U[0] = I[3], U[1] = I[4], U[2] = I[5], U[3] = I[12], U[4] = I[13], U[5] = I[14];
  } else {
    real S[6];
    ldk(K_S, 6 * e[2], S, 6);
    articulated_times(I, S, U);
  }
  const real d = (real)1 / (along(z, e[2], U) + K_ARMATURE[e[2]]);
  const real u[8] = {U[0], U[1], U[2], U[3], U[4], U[5], d, 0};
  if (hangs) {
    articulated_minus(I, U, d);
    UNROLL
    for (int k = 0; k < 6; ++k) U[k] *= d;
    if (moves) {
      real X[12], f[6];
      ldv(s, e[0], X, 12);
      x_articulated_back(X, I, r);
      if (columns) x_force_back(X, U, f);
      stv(s, e[3], r, 21);
      if (columns) stv(s, e[5], f, 6);
    } else {
      stv(s, e[3], I, 21);
      if (columns) stv(s, e[5], U, 6);
    }
    stv(s, e[4], u, 8);
  } else {
    stv(s, e[3], u, 8);
    if (columns) {
      real a[6];
      UNROLL
      for (int c = 0; c < 6; ++c) a[c] = z ? (c == 2 ? d : (real)0) : K_S[6 * e[2] + c] * d;
      st(s, e[4], d);
      stv(s, e[5], a, 6);
    }
  }
}
/* Column c of freedom k, c beyond k. e = F, (U, D⁻¹), X, k → m = -D⁻¹ S·F, Xᵀ (F + U m); without a parent: the entry of M⁻¹ at two places, S m */
DEVICE void inverse_back(LOCAL real *s, const int *e, int z, int moves, int hangs) {
  real F[6], u[8], r[6];
  ldv(s, e[0], F, 6);
  ldv(s, e[1], u, 8);
  const real m = -u[6] * along(z, e[3], F);
  if (hangs) {
    UNROLL
    for (int c = 0; c < 6; ++c) F[c] += u[c] * m;
    if (moves) {
      real X[12];
      ldv(s, e[2], X, 12);
      x_force_back(X, F, r);
      stv(s, e[5], r, 6);
    } else {
      stv(s, e[5], F, 6);
    }
    st(s, e[4], m);
  } else {
    UNROLL
    for (int c = 0; c < 6; ++c) r[c] = z ? (c == 2 ? m : (real)0) : K_S[6 * e[3] + c] * m;
    st(s, e[4], m);
    st(s, e[5], m);
    stv(s, e[6], r, 6);
  }
}
/* e = A_λ, (U, D⁻¹), X, k, m → M⁻¹[k, c] = m - D⁻¹ U · X A_λ at two places, A = X A_λ + S M⁻¹[k, c]; m is what the way back left */
DEVICE void inverse_forward(LOCAL real *s, const int *e, int z, int moves, int needed) {
  real A[6], u[8], x[6];
  ldv(s, e[0], A, 6);
  ldv(s, e[1], u, 8);
  if (moves) {
    real X[12];
    ldv(s, e[2], X, 12);
    x_motion(X, A, x);
  } else {
    UNROLL
    for (int c = 0; c < 6; ++c) x[c] = A[c];
  }
  const real m = ld(s, e[4]) - u[6] * (u[0] * x[0] + u[1] * x[1] + u[2] * x[2] + u[3] * x[3] + u[4] * x[4] + u[5] * x[5]);
  st(s, e[5], m);
  st(s, e[6], m);
  if (needed) {
    if (z) {
      x[2] += m;
    } else {
      UNROLL
      for (int c = 0; c < 6; ++c) x[c] += K_S[6 * e[3] + c] * m;
    }
    stv(s, e[7], x, 6);
  }
}
/* Forward dynamics with the same U and D: the force G = f + Σ of the children's, then e = f, (U, D⁻¹), X, k, τ → u = D⁻¹ (τ - S·G), Xᵀ (G + U u), over a list of the
   children's; without a parent: the acceleration u itself, at two places, and S u. The accelerations follow by `inverse_forward`. */
DEVICE void solve_back(LOCAL real *s, const int *e, int z, int moves, int hangs, FROM const unsigned short *list) {
  const int after = 7 + (1 - hangs);
  real G[6], u[8], r[6];
  ldv(s, e[0], G, 6);
  ROLLED
  for (int k = e[after]; k < e[after] + e[after + 1]; ++k) {
    ldv(s, list[k], r, 6);
    add6(G, r);
  }
  ldv(s, e[1], u, 8);
  const real x = u[6] * (ld(s, e[4]) - along(z, e[3], G));
  st(s, e[5], x);
  if (hangs) {
    UNROLL
    for (int c = 0; c < 6; ++c) G[c] += u[c] * x;
    if (moves) {
      real X[12];
      ldv(s, e[2], X, 12);
      x_force_back(X, G, r);
      stv(s, e[6], r, 6);
    } else {
      stv(s, e[6], G, 6);
    }
  } else {
    UNROLL
    for (int c = 0; c < 6; ++c) r[c] = z ? (c == 2 ? x : (real)0) : K_S[6 * e[3] + c] * x;
    st(s, e[6], x);
    stv(s, e[7], r, 6);
  }
}

/* --- matrices without a tree's zeros: with mimic joints M couples limbs --------------------------------------------------------------------- */

/* A symmetric positive definite matrix becomes its inverse, pivot by pivot, a thread a row. e = row, row of the pivot, p, n → the row afterwards; `own`: it is the
   pivot's */
DEVICE void pivot(LOCAL real *s, const int *e, int own) {
  const int p = e[2], n = e[3];
  const real d = (real)1 / ld(s, e[1] + p), f = own ? d : -ld(s, e[0] + p) * d;
  ROLLED
  for (int k = 0; k < n; ++k) {
    const real x = ld(s, e[1] + k) * f;
    st(s, e[4] + k, k == p ? f : own ? x : ld(s, e[0] + k) + x);
  }
}
/* e = row, x, n, b → b + row · x, or b - row · x */
DEVICE void row_times(LOCAL real *s, const int *e, int minus) {
  real x = 0;
  ROLLED
  for (int k = 0; k < e[2]; ++k) x += ld(s, e[0] + k) * ld(s, e[1] + k);
  st(s, e[4], minus ? ld(s, e[3]) - x : ld(s, e[3]) + x);
}
/* e = x, y → x - y */
DEVICE void less(LOCAL real *s, const int *e) { st(s, e[2], ld(s, e[0]) - ld(s, e[1])); }

/* --- kinematics ------------------------------------------------------------------------------------------------------------------------ */

/* e = X, Y → X Y */
DEVICE void compose(LOCAL real *s, const int *e) {
  real X[12], Y[12], R[12];
  ldv(s, e[0], X, 12);
  ldv(s, e[1], Y, 12);
  x_compose(X, Y, R);
  stv(s, e[2], R, 12);
}
/* e = Y, k → Y S_k, linear first: the column of a Jacobian in the frame that Y leads to */
DEVICE void jacobian_local(LOCAL real *s, const int *e, int z) {
  real Y[12], S[6] = {0, 0, 1, 0, 0, 0}, r[6];
  ldv(s, e[0], Y, 12);
  if (!z) ldk(K_S, 6 * e[1], S, 6);
  x_motion(Y, S, r);
  const real t[6] = {r[3], r[4], r[5], r[0], r[1], r[2]};
  stv(s, e[2], t, 6);
}
/* e = Y from the world to the body, T from the world to the frame, k → the column in world axes at the frame's origin, or at the world's */
DEVICE void jacobian_world(LOCAL real *s, const int *e, int z, int at_frame) {
  real Y[12], S[6] = {0, 0, 1, 0, 0, 0}, w[3], t[3], o[3];
  ldv(s, e[0], Y, 12);
  if (!z) ldk(K_S, 6 * e[2], S, 6);
  rotate_back(Y, S, w);
  rotate_back(Y, S + 3, t);
  UNROLL
  for (int c = 0; c < 3; ++c) o[c] = Y[9 + c] - (at_frame ? ld(s, e[1] + 9 + c) : (real)0);
  cross3_add(o, w, t);
  const real r[6] = {t[0], t[1], t[2], w[0], w[1], w[2]};
  stv(s, e[3], r, 6);
}
/* e = columns 6 numbers apart, their rates, how many → Σ J q̇ */
DEVICE void motion_of_columns(LOCAL real *s, const int *e) {
  real r[6] = {0, 0, 0, 0, 0, 0}, c[6];
  ROLLED
  for (int k = 0; k < e[2]; ++k) {
    const real x = ld(s, e[1] + k);
    ldv(s, e[0] + 6 * k, c, 6);
    UNROLL
    for (int i = 0; i < 6; ++i) r[i] += c[i] * x;
  }
  stv(s, e[3], r, 6);
}
/* The rate of a column J that moves with a body, both linear first. e = J, motion of the body, of the frame, T from the world to the frame → m × J for columns at
   the world's origin; from the same ones, the rate of the column at the frame's origin; or (m - m_frame) × J for columns in the frame */
DEVICE void jacobian_rate(LOCAL real *s, const int *e, int at_frame, int in_frame) {
  real J[6], m[6], o[6], r[6] = {0, 0, 0, 0, 0, 0};
  ldv(s, e[0], J, 6);
  ldv(s, e[1], m, 6);
  ldv(s, e[2], o, 6);
  if (in_frame) {
    UNROLL
    for (int c = 0; c < 6; ++c) m[c] -= o[c];
  }
  cross3_add(m + 3, J + 3, r + 3);
  cross3_add(m + 3, J, r);
  cross3_add(m, J + 3, r);
  if (at_frame) { /* v + w × p moves by v' + w' × p + w × p' */
    const real p[3] = {ld(s, e[3] + 9), ld(s, e[3] + 10), ld(s, e[3] + 11)};
    real d[3] = {o[0], o[1], o[2]};
    cross3_add(o + 3, p, d);
    cross3_add(r + 3, p, r);
    cross3_add(J + 3, d, r);
  }
  stv(s, e[4], r, 6);
}
