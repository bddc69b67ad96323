// Pinocchio's constrained dynamics and their derivatives over rows of (N, n) arrays; models come as in pinocchio_harness.cpp.
#include "pinocchio_harness.cpp"

#include <pinocchio/algorithm/constrained-dynamics-derivatives.hpp>
#include <pinocchio/algorithm/constrained-dynamics.hpp>

struct Held {
  pin::Model model;
  pin::Data data;
  std::vector<pin::RigidConstraintModel, Eigen::aligned_allocator<pin::RigidConstraintModel>> models;
  std::vector<pin::RigidConstraintData, Eigen::aligned_allocator<pin::RigidConstraintData>> parts;
  pin::ProximalSettings settings{1e-12, 0.0, 1};
};

// joints[k], rows[k] (3 or 6) and the place of each contact on its joint: rotation (9, row-major) and translation (3)
extern "C" Held *hold(Handle *h, int contacts, const int *joints, const int *rows, const double *places) {
  auto *held = new Held{h->model, pin::Data(h->model), {}, {}};
  for (int k = 0; k < contacts; ++k) {
    const pin::SE3 place(Map<const Eigen::Matrix<double, 3, 3, Eigen::RowMajor>>(places + 12 * k), Map<const Eigen::Vector3d>(places + 12 * k + 9));
    held->models.emplace_back(rows[k] == 3 ? pin::CONTACT_3D : pin::CONTACT_6D, held->model, joints[k], place, pin::LOCAL);
  }
  for (const auto &model : held->models) held->parts.emplace_back(model);
  pin::initConstraintDynamics(held->model, held->data, held->models, held->parts);
  return held;
}

extern "C" void contact_dynamics(Held *h, long repeats, long count, const double *q, const double *v, const double *tau, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      Map<Eigen::VectorXd>(out[0] + i * nv, nv) = pin::constraintDynamics(h->model, h->data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(tau + i * nv, nv), h->models, h->parts, h->settings);
      const auto rows = h->data.lambda_c.size();
      Map<Eigen::VectorXd>(out[1] + i * rows, rows) = h->data.lambda_c;
    }
}

extern "C" void contact_dynamics_derivatives(Held *h, long repeats, long count, const double *q, const double *v, const double *tau, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  auto &data = h->data;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      pin::constraintDynamics(h->model, data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(tau + i * nv, nv), h->models, h->parts, h->settings);
      pin::computeConstraintDynamicsDerivatives(h->model, data, h->models, h->parts, h->settings);
      const auto rows = data.lambda_c.size(), at = i * nv * nv, below = i * rows * nv;
      Map<RowMajor>(out[0] + at, nv, nv) = data.ddq_dq;
      Map<RowMajor>(out[1] + at, nv, nv) = data.ddq_dv;
      Map<RowMajor>(out[2] + at, nv, nv) = data.ddq_dtau;
      Map<RowMajor>(out[3] + below, rows, nv) = data.dlambda_dq;
      Map<RowMajor>(out[4] + below, rows, nv) = data.dlambda_dv;
      Map<RowMajor>(out[5] + below, rows, nv) = data.dlambda_dtau;
    }
}
