// Motions: positions at times, between which it is straight lines.

function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
}

function floats(text) {
  return new Float32Array(bytes(text));
}

class Motion {
  constructor(data, nq, units) {
    this.t = floats(data.t);
    this.q = floats(data.q);
    this.nq = nq;
    this.units = units; // [start, end] of quaternions and (cos, sin) pairs in q
    this.duration = this.t[this.t.length - 1] - this.t[0];
  }

  frame(k) {
    return Array.from(this.q.subarray(k * this.nq, (k + 1) * this.nq));
  }

  index(t) {
    let low = 0, high = this.t.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.t[middle] - this.t[0] <= t) low = middle;
      else high = middle;
    }
    return low;
  }

  at(t) {
    if (this.t.length < 2) return this.frame(0);
    const k = this.index(t), part = clamp((t + this.t[0] - this.t[k]) / (this.t[k + 1] - this.t[k]), 0, 1);
    const a = this.frame(k), b = this.frame(k + 1);
    for (const [from, to] of this.units) {
      if (dot(a.slice(from, to), b.slice(from, to)) < 0) for (let i = from; i < to; i++) b[i] = -b[i];
    }
    const q = a.map((x, i) => x + part * (b[i] - x));
    for (const [from, to] of this.units) {
      const length = Math.hypot(...q.slice(from, to)) || 1;
      for (let i = from; i < to; i++) q[i] /= length;
    }
    return q;
  }
}
