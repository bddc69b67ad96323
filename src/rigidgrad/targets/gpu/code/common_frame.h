/* Operations in one frame for a whole tree, where nothing has to be carried from body to body: motions and forces of a path or of a subtree are plain sums. The frame
   is turned like the root's and has its origin at the tree's centre; Y leads from there to a body.
   A freedom's record has its axis J, its rate J' = v_λ × J, w = (v_λ + v) × J and J'' = a_λ × J + v_λ × J', six numbers each from 0, 6, 12 and 18 on; a body's, later
   its subtree's, the inertia I, the Coriolis factor B (K by rows, p) of twice its velocity, and the force, from 0, 10 and 22 on. */

/* e = T, T_c → Y: what leads from the root to a body, seen from the origin of c */
DEVICE void centred(LOCAL real *s, const int *e) {
  real T[12];
  ldv(s, e[0], T, 12);
  UNROLL
  for (int k = 9; k < 12; ++k) T[k] -= ld(s, e[1] + k);
  stv(s, e[2], T, 12);
}
/* e = Y, k → J = Y⁻¹ S_k */
DEVICE void axis(LOCAL real *s, const int *e, int z) {
  real Y[12], J[6];
  ldv(s, e[0], Y, 12);
  if (z) {
    const real *w = Y + 6, *p = Y + 9;
    J[0] = w[0], J[1] = w[1], J[2] = w[2];
    J[3] = p[1] * w[2] - p[2] * w[1];
    J[4] = p[2] * w[0] - p[0] * w[2];
    J[5] = p[0] * w[1] - p[1] * w[0];
  } else {
    real S[6];
    ldk(K_S, 6 * e[1], S, 6);
    x_motion_back(Y, S, J);
  }
  stv(s, e[2], J, 6);
}
/* e = Y, body → its inertia */
DEVICE void inertia(LOCAL real *s, const int *e) {
  real Y[12], I[10], r[10];
  ldv(s, e[0], Y, 12);
  ldk(K_INERTIA, 10 * e[1], I, 10);
  x_inertia_back(Y, I, r);
  stv(s, e[2], r, 10);
}
/* e = X, g → X g: gravity as the root sees it */
DEVICE void turned(LOCAL real *s, const int *e) {
  real X[12], m[6], r[6];
  ldv(s, e[0], X, 12);
  ldv(s, e[1], m, 6);
  x_motion(X, m, r);
  stv(s, e[2], r, 6);
}
/* e = Y, x → Y⁻¹ x of a motion, Yᵀ x of a force */
DEVICE void motion_to_common(LOCAL real *s, const int *e) {
  real Y[12], m[6], r[6];
  ldv(s, e[0], Y, 12);
  ldv(s, e[1], m, 6);
  x_motion_back(Y, m, r);
  stv(s, e[2], r, 6);
}
DEVICE void force_to_common(LOCAL real *s, const int *e) {
  real Y[12], f[6], r[6];
  ldv(s, e[0], Y, 12);
  ldv(s, e[1], f, 6);
  x_force_back(Y, f, r);
  stv(s, e[2], r, 6);
}
/* e = own → own + Σ vectors over a list; `weighted`: of (vector, number) */
DEVICE void along_path(LOCAL real *s, const int *e, int weighted, FROM const unsigned short *list) {
  real r[6], x[6];
  ldv(s, e[0], r, 6);
  ROLLED
  for (int k = e[2]; k < e[2] + e[3]; ++k) {
    ldv(s, list[weighted ? 2 * k : k], x, 6);
    const real m = weighted ? ld(s, list[2 * k + 1]) : (real)1;
    UNROLL
    for (int c = 0; c < 6; ++c) r[c] += x[c] * m;
  }
  stv(s, e[1], r, 6);
}
/* e = J, v_λ, v, q̇, q̈ → J', w, and g = J q̈ + J' q̇ */
DEVICE void rate(LOCAL real *s, const int *e, int accelerates) {
  real J[6], v[6], x[6], r[6] = {0, 0, 0, 0, 0, 0}, w[6] = {0, 0, 0, 0, 0, 0}, g[6];
  ldv(s, e[0], J, 6);
  ldv(s, e[1], v, 6);
  ldv(s, e[2], x, 6);
  const real qd = ld(s, e[3]), qdd = accelerates ? ld(s, e[4]) : (real)0;
  cross_motion_add(v, J, r);
  add6(v, x);
  cross_motion_add(v, J, w);
  UNROLL
  for (int c = 0; c < 6; ++c) g[c] = accelerates ? J[c] * qdd + r[c] * qd : r[c] * qd;
  stv(s, e[5], r, 6);
  stv(s, e[6], w, 6);
  stv(s, e[7], g, 6);
}
/* e = J, v_λ, q̇, q̈ → g alone */
DEVICE void gain(LOCAL real *s, const int *e, int accelerates) {
  real J[6], v[6], r[6] = {0, 0, 0, 0, 0, 0};
  ldv(s, e[0], J, 6);
  ldv(s, e[1], v, 6);
  cross_motion_add(v, J, r);
  const real qd = ld(s, e[2]), qdd = accelerates ? ld(s, e[3]) : (real)0;
  UNROLL
  for (int c = 0; c < 6; ++c) r[c] = accelerates ? J[c] * qdd + r[c] * qd : r[c] * qd;
  stv(s, e[4], r, 6);
}
/* e = J, J', v_λ, a_λ → J'' */
DEVICE void second_rate(LOCAL real *s, const int *e) {
  real x[6], y[6], r[6] = {0, 0, 0, 0, 0, 0};
  ldv(s, e[3], x, 6);
  ldv(s, e[0], y, 6);
  cross_motion_add(x, y, r);
  ldv(s, e[2], x, 6);
  ldv(s, e[1], y, 6);
  cross_motion_add(x, y, r);
  stv(s, e[4], r, 6);
}
/* e = I, v → B of 2 v: with Σ = ½ tr(I) 1 - I about the origin, K = ω × Σ + v hᵀ and p = m v + ω × h */
DEVICE void coriolis(LOCAL real *s, const int *e) {
  real I[10], v[6], B[12];
  ldv(s, e[0], I, 10);
  ldv(s, e[1], v, 6);
  UNROLL
  for (int c = 0; c < 6; ++c) v[c] += v[c];
  const real spin = (I[4] + I[6] + I[9]) * (real)0.5, *w = v, *h = I + 1;
  const real G[9] = {spin - I[4], -I[5], -I[7], -I[5], spin - I[6], -I[8], -I[7], -I[8], spin - I[9]};
  UNROLL
  for (int j = 0; j < 3; ++j) { /* column j of ω × Σ */
    B[j] = w[1] * G[6 + j] - w[2] * G[3 + j] + v[3] * h[j];
    B[3 + j] = w[2] * G[j] - w[0] * G[6 + j] + v[4] * h[j];
    B[6 + j] = w[0] * G[3 + j] - w[1] * G[j] + v[5] * h[j];
  }
  UNROLL
  for (int c = 0; c < 3; ++c) B[9 + c] = I[0] * v[3 + c];
  cross3_add(w, h, B + 9);
  stv(s, e[2], B, 12);
}
/* r += B m */
DEVICE void coriolis_add(const real *B, const real *m, real *r) {
  const real trace = B[0] + B[4] + B[8];
  UNROLL
  for (int k = 0; k < 3; ++k) r[k] += trace * m[k] - (B[3 * k] * m[0] + B[3 * k + 1] * m[1] + B[3 * k + 2] * m[2]);
  cross3_add(m, B + 9, r + 3);
}
/* e = I, a, v → f = I a + v ×* I v */
DEVICE void net_force(LOCAL real *s, const int *e, int moves) {
  real I[10], x[6], f[6], h[6];
  ldv(s, e[0], I, 10);
  ldv(s, e[1], x, 6);
  inertia_times(I, x, f);
  if (moves) {
    ldv(s, e[2], x, 6);
    inertia_times(I, x, h);
    cross_force_add(x, h, f);
  }
  stv(s, e[3], f, 6);
}
/* e = Y, a, v, body → the same in the body's frame */
DEVICE void own_force(LOCAL real *s, const int *e) {
  real Y[12], I[10], x[6], m[6], f[6], h[6];
  ldv(s, e[0], Y, 12);
  ldk(K_INERTIA, 10 * e[3], I, 10);
  ldv(s, e[1], m, 6);
  x_motion(Y, m, x);
  inertia_times(I, x, f);
  ldv(s, e[2], m, 6);
  x_motion(Y, m, x);
  inertia_times(I, x, h);
  cross_force_add(x, h, f);
  stv(s, e[4], f, 6);
}
/* e = f, X, w → f - Xᵀ w for a wrench w, force first, in the frame that X leads to */
DEVICE void wrench(LOCAL real *s, const int *e) {
  real f[6], X[12], r[6];
  ldv(s, e[0], f, 6);
  ldv(s, e[1], X, 12);
  const real w[6] = {ld(s, e[2] + 3), ld(s, e[2] + 4), ld(s, e[2] + 5), ld(s, e[2]), ld(s, e[2] + 1), ld(s, e[2] + 2)};
  x_force_back(X, w, r);
  UNROLL
  for (int k = 0; k < 6; ++k) f[k] -= r[k];
  stv(s, e[3], f, 6);
}
/* Number c of all bodies' records summed over their subtrees. e = c, over a list of (from, to, whether the sum so far is part of it) */
DEVICE void subtree(LOCAL real *s, const int *e, FROM const unsigned short *list) {
  real x = 0;
  ROLLED
  for (int k = e[1]; k < e[1] + e[2]; ++k) {
    const real more = ld(s, list[3 * k] + e[0]);
    x = list[3 * k + 2] ? x + more : more;
    st(s, list[3 * k + 1] + e[0], x);
  }
}
/* e = record of a freedom, of its subtree → I J, ∂f/∂q = I J'' + B J' + J ×* f, ∂f/∂q̇ = I w + B J, the angular part of Bᵀ J */
DEVICE void freedom(LOCAL real *s, const int *e) {
  real I[10], B[12], J[6], x[6], r[6];
  ldv(s, e[1], I, 10);
  ldv(s, e[0], J, 6);
  inertia_times(I, J, r);
  stv(s, e[2], r, 6);
  ldv(s, e[1] + 10, B, 12);
  ldv(s, e[0] + 12, x, 6);
  inertia_times(I, x, r);
  coriolis_add(B, J, r);
  stv(s, e[2] + 12, r, 6);
  ldv(s, e[0] + 18, x, 6);
  inertia_times(I, x, r);
  ldv(s, e[0] + 6, x, 6);
  coriolis_add(B, x, r);
  ldv(s, e[1] + 22, x, 6);
  cross_force_add(J, x, r);
  stv(s, e[2] + 6, r, 6);
  const real trace = B[0] + B[4] + B[8];
  real b[4] = {trace * J[0] - (B[0] * J[0] + B[3] * J[1] + B[6] * J[2]), trace * J[1] - (B[1] * J[0] + B[4] * J[1] + B[7] * J[2]),
               trace * J[2] - (B[2] * J[0] + B[5] * J[1] + B[8] * J[2]), 0};
  cross3_add(B + 9, J + 3, b);
  stv(s, e[2] + 18, b, 4);
}
/* e = J, I → I J */
DEVICE void momentum(LOCAL real *s, const int *e) {
  real I[10], J[6], r[6];
  ldv(s, e[0], J, 6);
  ldv(s, e[1], I, 10);
  inertia_times(I, J, r);
  stv(s, e[2], r, 6);
}
DEVICE real dot6(const real *x, const real *y) { return x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3] + x[4] * y[4] + x[5] * y[5]; }
/* e = record of a freedom j, what `freedom` left of one beyond it, i → entries (j, i) and (i, j) of ∂τ/∂q, the same of ∂τ/∂q̇, and of M */
DEVICE void pair(LOCAL real *s, const int *e) {
  real J[6], x[6], f[6], m[6], b[4], r[6];
  ldv(s, e[0], J, 6);
  ldv(s, e[1] + 6, f, 6);
  r[0] = dot6(J, f);
  ldv(s, e[1] + 12, f, 6);
  r[2] = dot6(J, f);
  ldv(s, e[1], m, 6);
  r[4] = dot6(J, m);
  ldv(s, e[1] + 18, b, 4);
  ldv(s, e[0] + 18, x, 6);
  r[1] = dot6(m, x);
  ldv(s, e[0] + 6, x, 6);
  r[1] += b[0] * x[0] + b[1] * x[1] + b[2] * x[2];
  ldv(s, e[0] + 12, x, 6);
  r[3] = dot6(m, x) + (b[0] * J[0] + b[1] * J[1] + b[2] * J[2]);
  r[5] = 0;
  stv(s, e[2], r, 6);
}
/* Freedoms of one joint, whose axes do not move against each other. e = record of row k, what `freedom` left of column l, record of the subtree, k → entry (k, l) of
   ∂τ/∂q, ∂τ/∂q̇, M. On the diagonal is the armature, and S × S is nothing. */
DEVICE void own_pair(LOCAL real *s, const int *e, int diagonal) {
  real J[6], f[6], r[4];
  ldv(s, e[0], J, 6);
  ldv(s, e[1] + 6, f, 6);
  r[0] = dot6(J, f);
  ldv(s, e[1] + 12, f, 6);
  r[1] = dot6(J, f);
  ldv(s, e[1], f, 6);
  r[2] = dot6(J, f) + (diagonal ? K_ARMATURE[e[3]] : (real)0);
  r[3] = 0;
  if (!diagonal) { /* - J_k · (J_l ×* f) */
    real L[6], d[6] = {0, 0, 0, 0, 0, 0};
    ldv(s, e[4], L, 6);
    ldv(s, e[2], f, 6);
    cross_force_add(L, f, d);
    r[0] -= dot6(J, d);
  }
  stv(s, e[5], r, 4);
}
/* e = J_j, I J_i, k → entry (j, i) of M, with the armature of k on the diagonal */
DEVICE void mass(LOCAL real *s, const int *e, int diagonal) {
  real J[6], f[6];
  ldv(s, e[0], J, 6);
  ldv(s, e[1], f, 6);
  st(s, e[3], dot6(J, f) + (diagonal ? K_ARMATURE[e[2]] : (real)0));
}
/* e = J, f, k, q̈ → J · f + armature q̈ */
DEVICE void torque(LOCAL real *s, const int *e, int accelerates) {
  real J[6], f[6];
  ldv(s, e[0], J, 6);
  ldv(s, e[1], f, 6);
  real x = dot6(J, f);
  if (accelerates) x += K_ARMATURE[e[2]] * ld(s, e[3]);
  st(s, e[4], x);
}
