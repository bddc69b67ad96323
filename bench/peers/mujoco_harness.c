// MuJoCo's dynamics over rows of (N, n) arrays with the fewest calls that give the result: no contacts, constraints, actuators or sensors.
// A model comes from mujoco_c.py by a binary file; layouts and joint order are MuJoCo's.
#include <stdlib.h>
#include <string.h>

#include <mujoco/mujoco.h>

typedef struct {
  mjModel *model;
  mjData *data;
} Handle;

Handle *create(const char *path) {
  Handle *h = malloc(sizeof(Handle));
  h->model = mj_loadModel(path, NULL);
  if (!h->model) {
    free(h);
    return NULL;
  }
  h->data = mj_makeData(h->model);
  return h;
}

// tau = M a + bias, by recursive Newton-Euler.
void rnea(Handle *h, long repeats, long count, const double *q, const double *v, const double *a, double **out) {
  mjModel *m = h->model;
  mjData *d = h->data;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      memcpy(d->qpos, q + i * m->nq, sizeof(double) * m->nq);
      memcpy(d->qvel, v + i * m->nv, sizeof(double) * m->nv);
      memcpy(d->qacc, a + i * m->nv, sizeof(double) * m->nv);
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_comVel(m, d);
      mj_rne(m, d, 1, out[0] + i * m->nv);
    }
}

// a = M⁻¹(tau - bias), by composite rigid bodies and a sparse factor.
void aba(Handle *h, long repeats, long count, const double *q, const double *v, const double *tau, double **out) {
  mjModel *m = h->model;
  mjData *d = h->data;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      double *result = out[0] + i * m->nv;
      memcpy(d->qpos, q + i * m->nq, sizeof(double) * m->nq);
      memcpy(d->qvel, v + i * m->nv, sizeof(double) * m->nv);
      mj_kinematics(m, d);
      mj_comPos(m, d);
      mj_makeM(m, d);
      mj_factorM(m, d);
      mj_comVel(m, d);
      mj_rne(m, d, 0, d->qfrc_bias);
      for (int k = 0; k < m->nv; ++k) d->qfrc_smooth[k] = tau[i * m->nv + k] - d->qfrc_bias[k];
      mj_solveM(m, d, result, d->qfrc_smooth, 1);
    }
}
