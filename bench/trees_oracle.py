"""Inverse dynamics in long double, by the textbook's two loops in C: what `trees.py` measures
errors against.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <math.h>
#include <stdlib.h>
typedef long double T;
static void cross(const T *a, const T *b, T *c) { c[0] = a[1]*b[2]-a[2]*b[1]; c[1] = a[2]*b[0]-a[0]*b[2]; c[2] = a[0]*b[1]-a[1]*b[0]; }
static void rot(const T *E, const T *x, T *y) { for (int i = 0; i < 3; i++) y[i] = E[3*i]*x[0]+E[3*i+1]*x[1]+E[3*i+2]*x[2]; }
static void unrot(const T *E, const T *x, T *y) { for (int i = 0; i < 3; i++) y[i] = E[i]*x[0]+E[3+i]*x[1]+E[6+i]*x[2]; }
static void inertia(const double *d, const T *v, T *h) {
    T c[3] = {d[13], d[14], d[15]}, s[3], t[3]; cross(c, v + 3, s); cross(c, v, t);
    h[0] = d[16]*v[0]+d[19]*v[1]+d[20]*v[2]+s[0]; h[1] = d[19]*v[0]+d[17]*v[1]+d[21]*v[2]+s[1]; h[2] = d[20]*v[0]+d[21]*v[1]+d[18]*v[2]+s[2];
    for (int k = 0; k < 3; k++) h[3 + k] = d[12]*v[3 + k] - t[k];
}
int rnea(long n, const int *parent, const int *order, const double *data, const double *g, const double *q, const double *v, const double *a, double *tau) {
    T *W = malloc(sizeof(T) * 30 * n); if (!W) return 1;
    T still[12] = {0}; for (int k = 0; k < 3; k++) still[9 + k] = -(T)g[k];
    for (long o = 0; o < n; o++) {
        long i = order[o]; const double *d = data + 24 * i; T *w = W + 30 * i, *E = w, *r = w + 9, *m = w + 12, *f = w + 24, t[3], u[3];
        const T *p = parent[i] < 0 ? still : W + 30 * (long)parent[i] + 12; T ang = d[22], lin = d[23], c = cosl(ang * q[i]), s = sinl(ang * q[i]);
        for (int k = 0; k < 3; k++) { E[k] = c*d[k]+s*d[3+k]; E[3+k] = c*d[3+k]-s*d[k]; E[6+k] = d[6+k]; r[k] = d[9+k]+d[6+k]*lin*q[i]; }
        for (int z = 0; z < 12; z += 6) { cross(r, p + z, t); for (int k = 0; k < 3; k++) u[k] = p[z+3+k]-t[k]; rot(E, p + z, m + z); rot(E, u, m + z + 3); }
        T x = ang * v[i], y = lin * v[i]; m[2] += x; m[5] += y;
        m[6] += m[1]*x; m[7] -= m[0]*x; m[8] += ang*a[i]; m[9] += m[4]*x+m[1]*y; m[10] -= m[3]*x+m[0]*y; m[11] += lin*a[i];
        T h[6], z[3]; inertia(d, m + 6, f); inertia(d, m, h);
        cross(m, h, z); for (int k = 0; k < 3; k++) f[k] += z[k]; cross(m + 3, h + 3, z); for (int k = 0; k < 3; k++) f[k] += z[k];
        cross(m, h + 3, z); for (int k = 0; k < 3; k++) f[3 + k] += z[k];
    }
    for (long o = n - 1; o >= 0; o--) {
        long i = order[o]; T *w = W + 30 * i, *f = w + 24; tau[i] = (double)(data[24*i+22]*f[2]+data[24*i+23]*f[5]);
        if (parent[i] >= 0) { T *F = W + 30 * (long)parent[i] + 24, c[3], l[3], t[3]; unrot(w, f, c); unrot(w, f + 3, l); cross(w + 9, l, t);
            for (int k = 0; k < 3; k++) { F[k] += c[k] + t[k]; F[3 + k] += l[k]; } }
    }
    free(W); return 0;
}
"""


class Oracle:
    """Compiled once for a run; `available` is False without a C compiler or a wider long double."""

    def __init__(self) -> None:
        compiler = shutil.which("gcc") or shutil.which("clang")
        self.available = bool(compiler) and np.finfo(np.longdouble).eps < 1e-18
        if self.available:
            self._folder = tempfile.TemporaryDirectory()
            source, library = (
                Path(self._folder.name, "oracle.c"),
                Path(self._folder.name, "oracle.so"),
            )
            source.write_text(SOURCE)
            subprocess.run(
                [str(compiler), "-O2", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True
            )
            self._library = ctypes.CDLL(str(library))

    def rnea(self, tree, q, v, a) -> np.ndarray:
        tau = np.empty(tree.bodies)
        arrays = [np.ascontiguousarray(x, np.float64) for x in (tree.data, tree.gravity, q, v, a)]
        tables = [np.ascontiguousarray(x, np.int32) for x in (tree.parents, tree.topology.order)]
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*tables, *arrays, tau)]
        if self._library.rnea(ctypes.c_long(tree.bodies), *pointers):
            raise MemoryError("the oracle's workspace of 480 bytes a body")
        return tau


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())
