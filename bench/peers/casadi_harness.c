// Loops over rows of (N, n) arrays around the C that casadi_generate.py wrote (GENERATED, a file name in quotes).
#include <stdlib.h>

#include GENERATED

#ifndef NV
#error "NV is the robot's number of joints"
#endif

#define LOOP(function, outputs, size)                                                                                              \
  void function(void *unused, long repeats, long count, const double *q, const double *v, const double *x, double **out) {         \
    casadi_int sz_arg, sz_res, sz_iw, sz_w;                                                                                        \
    state_##function##_work(&sz_arg, &sz_res, &sz_iw, &sz_w);                                                                      \
    const double **arg = calloc(sz_arg + 1, sizeof *arg);                                                                          \
    double **res = calloc(sz_res + 1, sizeof *res), *w = calloc(sz_w + 1, sizeof *w);                                              \
    casadi_int *iw = calloc(sz_iw + 1, sizeof *iw);                                                                                \
    (void)unused;                                                                                                                  \
    for (long r = 0; r < repeats; ++r)                                                                                             \
      for (long i = 0; i < count; ++i) {                                                                                           \
        arg[0] = q + i * NV;                                                                                                       \
        arg[1] = v + i * NV;                                                                                                       \
        arg[2] = x + i * NV;                                                                                                       \
        for (int k = 0; k < outputs; ++k) res[k] = out[k] + i * size;                                                              \
        state_##function(arg, res, iw, w, 0);                                                                                      \
      }                                                                                                                            \
    free(arg), free(res), free(iw), free(w);                                                                                       \
  }

#ifdef DYNAMICS
LOOP(rnea, 1, NV)
LOOP(aba, 1, NV)
#endif
#ifdef GRADIENTS
LOOP(rnea_derivatives, 3, NV * NV)
LOOP(aba_derivatives, 3, NV * NV)
#endif
