/* States on their manifold: x (+) alpha dx, and x (-) origin, from global memory by way of arrays of the thread */
DEVICE void moved_along(GLOBAL const real *x, GLOBAL const real *dx, real alpha, real *result) {
  real from[NX], by[ND];
  for (int i = 0; i < NX; ++i) from[i] = x[i];
  for (int i = 0; i < ND; ++i) by[i] = dx[i];
  moved_state(from, by, &alpha, result);
}
DEVICE void apart_from(const real *x, GLOBAL const real *origin, real *result) {
  real from[NX];
  for (int i = 0; i < NX; ++i) from[i] = origin[i];
  apart_state(x, from, result);
}
