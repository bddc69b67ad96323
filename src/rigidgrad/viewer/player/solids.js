// Solids as triangles: positions and normals.

const AROUND = 40;

// A surface of revolution about z through a profile of [radius, height, normal radius, normal height].
function revolved(profile) {
  const out = [];
  const corner = ([r, h, nr, nh], k) => {
    const a = (2 * Math.PI * k) / AROUND, c = Math.cos(a), s = Math.sin(a);
    out.push(r * c, r * s, h, nr * c, nr * s, nh);
  };
  for (let i = 0; i + 1 < profile.length; i++) {
    for (let k = 0; k < AROUND; k++) {
      const a = profile[i], b = profile[i + 1];
      corner(a, k), corner(a, k + 1), corner(b, k + 1), corner(a, k), corner(b, k + 1), corner(b, k);
    }
  }
  return out;
}

function solid({ kind, size, corners, surface }) {
  if (surface) return smooth(surface);
  if (kind === "mesh") return faceted(floats(corners));
  if (kind === "box") return box(size.map((x) => x / 2));
  const [radius, length = 0] = size, half = length / 2;
  if (kind === "cylinder") {
    const low = [[0, -half, 0, -1], [radius, -half, 0, -1]], high = [[radius, half, 0, 1], [0, half, 0, 1]];
    return [...revolved(low), ...revolved([[radius, -half, 1, 0], [radius, half, 1, 0]]), ...revolved(high)];
  }
  const profile = [];
  for (let i = 0; i <= 24; i++) {
    const a = (Math.PI * (i - 12)) / 24, shift = i < 12 ? -half : half;
    if (i === 12) profile.push([radius, -half, 1, 0]);
    profile.push([radius * Math.cos(a), radius * Math.sin(a) + shift, Math.cos(a), Math.sin(a)]);
  }
  return revolved(profile);
}

// A mesh: vertices in steps along each axis from the low corner, normals as bytes, faces.
function smooth({ low, step, vertices, normals, faces, wide }) {
  const at = new Uint16Array(bytes(vertices)), normal = new Int8Array(bytes(normals));
  const face = wide ? new Uint32Array(bytes(faces)) : new Uint16Array(bytes(faces)), out = new Float32Array(6 * face.length);
  face.forEach((v, i) => {
    for (let k = 0; k < 3; k++) (out[6 * i + k] = low[k] + step[k] * at[3 * v + k]), (out[6 * i + 3 + k] = normal[3 * v + k] / 127);
  });
  return out;
}

// Triangles, nine numbers each, with the normals of their planes.
function faceted(corners) {
  const out = [];
  for (let i = 0; i < corners.length; i += 9) {
    const [a, b, c] = [0, 3, 6].map((k) => [...corners.subarray(i + k, i + k + 3)]), normal = unit(cross(add(b, a, -1), add(c, a, -1)));
    for (const p of [a, b, c]) out.push(...p, ...normal);
  }
  return out;
}

function box(half) {
  const out = [];
  for (let axis = 0; axis < 3; axis++) {
    for (const side of [-1, 1]) {
      const u = (axis + 1) % 3, v = (axis + 2) % 3;
      const corners = [[-1, -1], [1, -1], [1, 1], [-1, -1], [1, 1], [-1, 1]];
      for (const [a, b] of side > 0 ? corners : corners.reverse()) {
        const p = [0, 0, 0], n = [0, 0, 0];
        p[axis] = side * half[axis], p[u] = a * half[u], p[v] = b * half[v], n[axis] = side;
        out.push(...p, ...n);
      }
    }
  }
  return out;
}
