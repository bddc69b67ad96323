// An orbit camera; z is up.

class Camera {
  constructor(low, high) {
    this.home = () => {
      this.middle = scaled(add(low, high), 0.5);
      this.size = Math.max(Math.hypot(...add(high, low, -1)) / 2, 1e-3);
      this.distance = 3.1 * this.size;
      this.yaw = -0.9, this.pitch = 0.32;
    };
    this.home();
  }

  back() {
    const c = Math.cos(this.pitch);
    return [c * Math.cos(this.yaw), c * Math.sin(this.yaw), Math.sin(this.pitch)];
  }

  axes() {
    const back = this.back(), right = [-Math.sin(this.yaw), Math.cos(this.yaw), 0];
    return { back, right, up: cross(back, right) };
  }

  eye() {
    return add(this.middle, this.back(), this.distance);
  }

  // For clip space, column by column; the middle of the view lies in the middle of the `free` part, [of the width, of the height].
  matrix(aspect, free) {
    const { back, right, up } = this.axes(), eye = this.eye();
    const f = 2.6 * Math.min(free[1], aspect * free[0]), near = this.distance / 100, far = this.distance * 100 + 100 * this.size;
    const [x, y, z] = [right, up, back].map((axis) => [...axis, -dot(axis, eye)]);
    const w = scaled(z, -1), depth = z.map((c, i) => (c * (far + near)) / (near - far) + (i === 3 ? (2 * far * near) / (near - far) : 0));
    const clip = [add(scaled(x, f / aspect), w, free[0] - 1), add(scaled(y, f), w, 1 - free[1]), depth, w];
    return [0, 1, 2, 3].flatMap((column) => clip.map((row) => row[column]));
  }

  orbit(dx, dy) {
    this.yaw -= 0.008 * dx;
    this.pitch = clamp(this.pitch + 0.008 * dy, -1.5, 1.5);
  }

  zoom(factor) {
    this.distance = clamp(this.distance * factor, 0.05 * this.size, 60 * this.size);
  }

  pan(dx, dy, height) {
    const { right, up } = this.axes(), step = this.distance / (1.2 * height);
    this.middle = add(add(this.middle, right, -dx * step), up, dy * step);
  }
}
