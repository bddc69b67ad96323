// Placements are 12 numbers: the rotation row by row, then the origin. Joints as in rigidgrad's model/joints.

const IDENTITY = [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];

function compose(a, b) {
  const c = new Array(12);
  for (let i = 0; i < 3; i++) {
    for (let j = 0; j < 3; j++) c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
    c[9 + i] = a[3 * i] * b[9] + a[3 * i + 1] * b[10] + a[3 * i + 2] * b[11] + a[9 + i];
  }
  return c;
}

const point = (a, p) => [0, 1, 2].map((i) => a[3 * i] * p[0] + a[3 * i + 1] * p[1] + a[3 * i + 2] * p[2] + a[9 + i]);
const turned = (a, p) => [0, 1, 2].map((i) => a[3 * i] * p[0] + a[3 * i + 1] * p[1] + a[3 * i + 2] * p[2]);
const add = (a, b, s = 1) => a.map((x, i) => x + s * b[i]);
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const scaled = (a, s) => a.map((x) => x * s);
const unit = (a) => scaled(a, 1 / (Math.hypot(...a) || 1));
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function about([x, y, z], angle) {
  const c = Math.cos(angle), s = Math.sin(angle), t = 1 - c;
  return [t * x * x + c, t * x * y - s * z, t * x * z + s * y, t * x * y + s * z, t * y * y + c, t * y * z - s * x,
    t * x * z - s * y, t * y * z + s * x, t * z * z + c, 0, 0, 0];
}

function fromQuaternion([x, y, z, w]) {
  return [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z),
    2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y), 0, 0, 0];
}

const at = (rotation, p) => [...rotation.slice(0, 9), ...p];

// --- joints -------------------------------------------------------------------------------------------------------------------------

function jointPose(joint, q) {
  const n = joint.mimic ? [joint.multiplier * q[joint.q] + joint.offset] : Array.from(q.slice(joint.q, joint.q + joint.nq));
  switch (joint.type) {
    case "prismatic": return at(IDENTITY, scaled(joint.axis, n[0]));
    case "helical": return at(about(joint.axis, n[0]), scaled(joint.axis, joint.pitch * n[0]));
    case "spherical": return fromQuaternion(n);
    case "planar": return [n[2], -n[3], 0, n[3], n[2], 0, 0, 0, 1, n[0], n[1], 0];
    case "floating": return at(fromQuaternion(n.slice(3)), n.slice(0, 3));
    case "revolute": return about(joint.axis, n[0]);
    default: throw new Error(`joint ${joint.name} is of no type that this page knows`);
  }
}

// Placements of all bodies; the world comes last, where body -1 is looked up.
function bodyPoses(joints, q) {
  const poses = [];
  joints.forEach((joint) => {
    const parent = joint.parent < 0 ? IDENTITY : poses[joint.parent];
    poses.push(compose(parent, compose(joint.placement, jointPose(joint, q))));
  });
  poses.push(IDENTITY);
  return poses;
}

const bodyPose = (poses, body) => poses[body < 0 ? poses.length - 1 : body];

// What a joint's sliders show, and back.
function dialValues(joint, n) {
  if (joint.plain === joint.nq) return [...n];
  if (joint.plain === joint.nq - 2) return [...n.slice(0, -2), Math.atan2(...n.slice(-2).reverse())];
  const [x, y, z, w] = n.slice(-4);
  const rpy = [Math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)), Math.asin(clamp(2 * (w * y - z * x), -1, 1)),
    Math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))];
  return [...n.slice(0, -4), ...rpy];
}

function jointNumbers(joint, values) {
  if (joint.plain === joint.nq) return values;
  if (joint.plain === joint.nq - 2) return [...values.slice(0, -1), Math.cos(values.at(-1)), Math.sin(values.at(-1))];
  const [sr, sp, sy] = values.slice(-3).map((a) => Math.sin(a / 2)), [cr, cp, cy] = values.slice(-3).map((a) => Math.cos(a / 2));
  return [...values.slice(0, -3), sr * cp * cy - cr * sp * sy, cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy,
    cr * cp * cy + sr * sp * sy];
}
