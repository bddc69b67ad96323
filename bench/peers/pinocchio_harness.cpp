// Pinocchio's algorithms over rows of (N, n) arrays, from and to row-major memory; called through ctypes by pinocchio_cpp.py.
// The model comes as arrays, so that nothing is linked: all code is instantiated from the headers with this compiler's flags.
#include <cstring>
#include <string>

#include <Eigen/Core>
#include <pinocchio/algorithm/aba-derivatives.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/rnea-derivatives.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/multibody.hpp>

namespace pin = pinocchio;
using Eigen::Map;
using Vector = Map<const Eigen::VectorXd>;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Handle {
  pin::Model model;
  pin::Data data;
};

static pin::JointModel joint_of(const std::string &type, const double *axis) {
  const Eigen::Vector3d along(axis[0], axis[1], axis[2]);
  if (type == "JointModelRX") return pin::JointModelRX();
  if (type == "JointModelRY") return pin::JointModelRY();
  if (type == "JointModelRZ") return pin::JointModelRZ();
  if (type == "JointModelPX") return pin::JointModelPX();
  if (type == "JointModelPY") return pin::JointModelPY();
  if (type == "JointModelPZ") return pin::JointModelPZ();
  if (type == "JointModelRevoluteUnaligned") return pin::JointModelRevoluteUnaligned(along);
  if (type == "JointModelPrismaticUnaligned") return pin::JointModelPrismaticUnaligned(along);
  if (type == "JointModelFreeFlyer") return pin::JointModelFreeFlyer();
  throw std::invalid_argument("joint type " + type);
}

// A body a row: types[i], parents[i], axis (3), rotation (9, row-major) and translation (3) of its joint, mass, centre (3), inertia about it (9).
extern "C" Handle *create(int bodies, const char **types, const int *parents, const double *rows, const double *gravity) {
  try {
    pin::Model model;
    for (int i = 0; i < bodies; ++i) {
      const double *r = rows + 28 * i;
      const pin::SE3 placement(Map<const Eigen::Matrix<double, 3, 3, Eigen::RowMajor>>(r + 3), Map<const Eigen::Vector3d>(r + 12));
      const Eigen::Matrix3d inertia = Map<const Eigen::Matrix3d>(r + 19);
      const auto joint = model.addJoint(parents[i], joint_of(types[i], r), placement, "joint" + std::to_string(i));
      model.appendBodyToJoint(joint, pin::Inertia(r[15], Map<const Eigen::Vector3d>(r + 16), inertia), pin::SE3::Identity());
    }
    model.gravity.linear() = Map<const Eigen::Vector3d>(gravity);
    return new Handle{model, pin::Data(model)};
  } catch (const std::exception &) {
    return nullptr;
  }
}

extern "C" void destroy(Handle *h) { delete h; }

extern "C" void rnea(Handle *h, long repeats, long count, const double *q, const double *v, const double *a, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i)
      Map<Eigen::VectorXd>(out[0] + i * nv, nv) =
          pin::rnea(h->model, h->data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(a + i * nv, nv));
}

extern "C" void aba(Handle *h, long repeats, long count, const double *q, const double *v, const double *tau, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i)
      Map<Eigen::VectorXd>(out[0] + i * nv, nv) = pin::aba(
          h->model, h->data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(tau + i * nv, nv), pin::Convention::LOCAL);
}

extern "C" void rnea_derivatives(Handle *h, long repeats, long count, const double *q, const double *v, const double *a, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  auto &data = h->data;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      pin::computeRNEADerivatives(h->model, data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(a + i * nv, nv));
      const auto at = i * nv * nv;
      Map<RowMajor>(out[0] + at, nv, nv) = data.dtau_dq;
      Map<RowMajor>(out[1] + at, nv, nv) = data.dtau_dv;
      data.M.triangularView<Eigen::StrictlyLower>() = data.M.transpose().triangularView<Eigen::StrictlyLower>();
      std::memcpy(out[2] + at, data.M.data(), sizeof(double) * nv * nv);  // symmetric: rows are columns
    }
}

extern "C" void aba_derivatives(Handle *h, long repeats, long count, const double *q, const double *v, const double *tau, double **out) {
  const auto nq = h->model.nq, nv = h->model.nv;
  auto &data = h->data;
  for (long r = 0; r < repeats; ++r)
    for (long i = 0; i < count; ++i) {
      pin::computeABADerivatives(h->model, data, Vector(q + i * nq, nq), Vector(v + i * nv, nv), Vector(tau + i * nv, nv));
      const auto at = i * nv * nv;
      Map<RowMajor>(out[0] + at, nv, nv) = data.ddq_dq;
      Map<RowMajor>(out[1] + at, nv, nv) = data.ddq_dv;
      std::memcpy(out[2] + at, data.Minv.data(), sizeof(double) * nv * nv);  // Pinocchio has filled both triangles
    }
}
