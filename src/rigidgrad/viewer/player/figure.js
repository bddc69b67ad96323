// The figure with its controls. A mounted one has `.player`: play(), pause(), seek(seconds), set(q), poses(), and the state that it shows.

const THEMES = {
  light: { background: [0.965, 0.97, 0.98], grid: [0.3, 0.35, 0.42, 0.42], shadow: [0.1, 0.13, 0.2, 0.2], path: [0.1, 0.4, 0.85, 1], axis: [0.75, 0.1, 0.55, 1] },
  dark: { background: [0.085, 0.095, 0.115], grid: [0.7, 0.76, 0.85, 0.3], shadow: [0, 0, 0, 0.45], path: [0.35, 0.68, 1, 1], axis: [1, 0.45, 0.85, 1] },
};
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const ICONS = {
  play: "M4 2l10 6-10 6z", pause: "M3 2h4v12H3zM9 2h4v12H9z", home: "M8 1l7 6h-2v7H9.5v-4h-3v4H3V7H1z",
  theme: "M8 1a7 7 0 1 0 0 14zM8 1a7 7 0 0 1 0 14v-1.3A5.7 5.7 0 0 0 8 2.3z", joints: "M1 3h8v2H1zM11 2h2v4h-2zM1 11h3v2H1zM6 10h2v4H6zM10 11h5v2h-5zM14 3h1v2h-1z",
  balls: "M8 2a6 6 0 1 0 .01 0zM8 4a4 4 0 1 1-.01 0z", axes: "M7 9V1h2v8l5 4-1.2 1.5L8 10.8l-4.8 3.7L2 13z", path: "M1 14C2 4 7 4 8 8s5 4 6-6l1.5.3C14 11 8 12 6.6 8.5 5.5 6 3.5 8 2.5 14z",
};

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "hidden") made.hidden = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function icon(button, name) {
  button.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;
  return button;
}

class Player {
  constructor(host, data) {
    this.host = host, this.data = data;
    this.joints = data.joints;
    const units = this.joints.filter((j) => j.plain < j.nq).map((j) => [j.q + j.plain, j.q + j.nq]);
    this.motion = data.motion ? new Motion(data.motion, data.nq, units) : null;
    this.time = 0, this.speed = 1, this.playing = false, this.visible = true;
    this.q = this.motion ? this.motion.frame(0) : data.start.slice();
    this.showPath = true, this.showAxes = false, this.showBalls = true;
    this.camera = new Camera(data.low, data.high);
    this.floor = Math.min(0, data.low[2]) - 1e-4 * this.camera.size;
    this.paths = data.paths.map((path) => ({ ...path, points: floats(path.points) }));
    this.arrows = data.arrows.map((one) => ({ ...one, t: floats(one.t), segments: floats(one.segments) }));
    this.balls = data.balls.map((ball) => ({ ...ball, t: floats(ball.t), at: floats(ball.at), radius: floats(ball.radius) }));
    this.trace = this.motion && data.trace ? this.traced() : null;
    this.build();
    this.picture = new Picture(this.canvas, data.shapes);
    this.setTheme(data.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
    this.watch();
    if (this.motion && data.autoplay && !matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
  }

  // The path of the traced point over all frames.
  traced() {
    const path = new Float32Array(3 * this.motion.t.length);
    for (let k = 0; k < this.motion.t.length; k++) {
      path.set(point(bodyPose(bodyPoses(this.joints, this.motion.frame(k)), this.data.trace.body), this.data.trace.point), 3 * k);
    }
    return path;
  }

  // --- what other scripts may call

  play() {
    if (!this.motion) return;
    if (this.time >= this.motion.duration) this.time = 0;
    this.playing = true, this.last = null;
    icon(this.playButton, "pause").setAttribute("aria-label", "Pause");
    this.wake();
  }

  pause() {
    this.playing = false;
    icon(this.playButton, "play").setAttribute("aria-label", "Play");
    this.wake();
  }

  seek(seconds) {
    this.time = clamp(seconds, 0, this.motion ? this.motion.duration : 0);
    if (this.motion) this.q = this.motion.at(this.time);
    this.wake();
  }

  set(q) {
    this.q = Array.from(q);
    this.wake();
  }

  poses() {
    return bodyPoses(this.joints, this.q);
  }

  // --- the parts of the page

  build() {
    const { data } = this, button = (name, label, onclick) => icon(element("button", { type: "button", "aria-label": label, title: label, onclick }), name);
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": `${data.name}, drag to look around` });
    const head = element("div", { class: "head" }, element("b", {}, data.title || data.name));
    data.notes.forEach((note) => head.append(element("div", { class: "note" }, note)));
    this.playButton = button("play", "Play", () => (this.playing ? this.pause() : this.play()));
    this.slider = element("input", { type: "range", class: "time", min: 0, max: 1000, step: 1, value: 0, "aria-label": "Time" });
    this.slider.addEventListener("input", () => (this.pause(), this.seek((this.slider.value / 1000) * this.motion.duration)));
    this.clock = element("span", { class: "clock" });
    this.speeds = element("select", { "aria-label": "Speed", onchange: () => (this.speed = +this.speeds.value) });
    SPEEDS.forEach((s) => this.speeds.append(element("option", { value: s, ...(s === 1 ? { selected: "" } : {}) }, `${s}×`)));
    const toggle = (name, label, key) => {
      const made = button(name, label, () => {
        this[key] = !this[key];
        made.setAttribute("aria-pressed", this[key]);
        this.wake();
      });
      made.setAttribute("aria-pressed", this[key]);
      return made;
    };
    const playback = this.motion ? [this.playButton, this.slider, this.clock, this.speeds] : [element("span", { class: "gap" })];
    const extras = this.trace || this.paths.length ? [toggle("path", "Show paths", "showPath")] : [];
    if (this.balls.length || this.arrows.length || data.shapes.some((s) => s.around)) extras.push(toggle("balls", "Show obstacles, spheres, targets and forces", "showBalls"));
    this.panel = element("div", { class: "joints", hidden: Boolean(this.motion) || innerWidth < 700 });
    this.buildDials();
    const dialsButton = button("joints", "Joint sliders", () => {
      this.panel.hidden = !this.panel.hidden;
      dialsButton.setAttribute("aria-pressed", !this.panel.hidden);
      this.wake();
    });
    dialsButton.setAttribute("aria-pressed", !this.panel.hidden);
    const bar = (this.bar = element("div", { class: "bar" }, ...playback, ...extras, toggle("axes", "Show joint axes", "showAxes"),
      ...(data.dials.length ? [dialsButton] : []), button("home", "Reset the view", () => (this.camera.home(), this.wake())),
      button("theme", "Light or dark", () => this.setTheme(this.theme === "dark" ? "light" : "dark"))));
    const root = this.host.attachShadow({ mode: "open" });
    root.append(element("style", {}, STYLE), this.canvas, head, this.panel, bar);
    this.host.style.height ||= data.height;
    this.canvas.style.touchAction = data.page ? "none" : "pan-y";
  }

  buildDials() {
    this.dials = this.data.dials.map((dial) => {
      const input = element("input", { type: "range", min: dial.low, max: dial.high, step: (dial.high - dial.low) / 1000 || 1, "aria-label": dial.label });
      const output = element("span");
      const made = { ...dial, input, output };
      input.addEventListener("input", () => (this.pause(), this.turn(made)));
      this.panel.append(element("div", {}, dial.label, output, input));
      return made;
    });
  }

  // Takes what one slider says.
  turn(dial) {
    const joint = this.joints[dial.joint], own = this.dials.filter((d) => d.joint === dial.joint);
    const values = dialValues(joint, this.q.slice(joint.q, joint.q + joint.nq));
    values[own.indexOf(dial)] = +dial.input.value;
    jointNumbers(joint, values).forEach((x, k) => (this.q[joint.q + k] = x));
    this.wake();
  }

  showDials() {
    if (this.panel.hidden) return;
    this.joints.forEach((joint, i) => {
      if (joint.mimic) return;
      const values = dialValues(joint, this.q.slice(joint.q, joint.q + joint.nq));
      this.dials.filter((d) => d.joint === i).forEach((dial, k) => {
        if (this.host.shadowRoot.activeElement !== dial.input) dial.input.value = values[k];
        dial.output.textContent = values[k].toFixed(3);
      });
    });
  }

  setTheme(name) {
    this.theme = name;
    this.host.classList.toggle("dark", name === "dark");
    this.wake();
  }

  // --- input

  watch() {
    const { canvas, camera } = this, fingers = new Map();
    const spread = () => {
      const [a, b] = [...fingers.values()];
      return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, d: Math.hypot(a.x - b.x, a.y - b.y) };
    };
    canvas.addEventListener("pointerdown", (e) => {
      canvas.setPointerCapture(e.pointerId);
      fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
    });
    canvas.addEventListener("pointermove", (e) => {
      const before = fingers.get(e.pointerId);
      if (!before) return;
      const two = fingers.size === 2 ? spread() : null;
      fingers.set(e.pointerId, { x: e.clientX, y: e.clientY });
      const dx = e.clientX - before.x, dy = e.clientY - before.y;
      if (two) {
        const now = spread();
        camera.zoom(two.d / Math.max(now.d, 1));
        camera.pan(now.x - two.x, now.y - two.y, canvas.clientHeight);
      } else if (e.buttons & 2 || e.shiftKey) camera.pan(dx, dy, canvas.clientHeight);
      else camera.orbit(dx, dy);
      this.wake();
    });
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(end, (e) => fingers.delete(e.pointerId));
    canvas.addEventListener("wheel", (e) => {
      if (!this.data.page && !e.ctrlKey && document.activeElement !== this.host) return; // a page that scrolls past
      e.preventDefault();
      camera.zoom(Math.exp(0.0012 * clamp(e.deltaY, -300, 300)));
      this.wake();
    }, { passive: false });
    canvas.addEventListener("contextmenu", (e) => e.preventDefault());
    canvas.addEventListener("dblclick", () => (camera.home(), this.wake()));
    canvas.addEventListener("keydown", (e) => {
      const step = this.motion ? this.motion.duration / Math.max(this.motion.t.length - 1, 1) : 0;
      const actions = {
        " ": () => (this.playing ? this.pause() : this.play()), ArrowRight: () => (this.pause(), this.seek(this.time + step)),
        ArrowLeft: () => (this.pause(), this.seek(this.time - step)), Home: () => this.seek(0), End: () => this.seek(Infinity),
      };
      if (!(e.key in actions) || !this.motion) return;
      e.preventDefault();
      actions[e.key]();
    });
    canvas.addEventListener("webglcontextlost", (e) => e.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => ((this.picture = new Picture(canvas, this.data.shapes)), this.wake()));
    new ResizeObserver(() => this.wake()).observe(canvas);
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      this.last = null;
      this.wake();
    }).observe(canvas);
  }

  // --- time

  wake() {
    if (!this.pending) this.pending = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.pending = 0;
    if (this.playing && this.motion) {
      if (this.last !== null) this.time += (this.speed * (now - this.last)) / 1000;
      this.last = now;
      const end = this.motion.duration;
      if (this.time > end + 0.6 * this.speed) this.time = 0; // rests a moment at the end, then begins again
      this.q = this.motion.at(Math.min(this.time, end));
    }
    this.draw();
    if (this.playing && this.visible) this.wake();
  }

  draw() {
    const { picture, camera, data } = this, colors = THEMES[this.theme], poses = this.poses(), size = camera.size;
    if (picture.gl.isContextLost()) return;
    picture.begin(camera, colors, this.free());
    const rough = size / 4, decade = 10 ** Math.floor(Math.log10(rough)), cell = [1, 2, 5].map((m) => m * decade).findLast((c) => c <= rough);
    picture.drawSolids(poses, this.floor, this.showBalls);
    picture.drawGround([camera.middle[0], camera.middle[1], this.floor], 8 * size, cell);
    if (this.showPath) this.drawPaths();
    data.points.forEach((spot) => picture.drawBall(spot.at, spot.radius || 0.02 * size, spot.color));
    if (this.showBalls) this.drawBalls(poses), this.drawArrows();
    if (this.showAxes) {
      const segments = this.joints.flatMap((joint, i) => {
        if (!joint.axis) return [];
        const along = scaled(turned(poses[i], joint.axis), 0.12 * size), origin = poses[i].slice(9);
        return [...add(origin, along, -1), ...add(origin, along)];
      });
      picture.drawLine(segments, colors.axis, 3, { separate: true, through: true });
    }
    if (this.motion) {
      const end = this.motion.duration, t = Math.min(this.time, end);
      this.slider.value = end > 0 ? (1000 * t) / end : 0;
      this.clock.textContent = `${t.toFixed(2)} / ${end.toFixed(2)} s`;
    }
    this.showDials();
  }

  // What the panel and the bar leave of the canvas.
  free() {
    const wide = this.canvas.clientWidth, tall = this.canvas.clientHeight, panel = this.panel.hidden ? 0 : this.panel.offsetWidth + 8;
    return [panel < 0.5 * wide ? 1 - panel / wide : 1, Math.max(1 - (this.bar.offsetHeight + 8) / tall, 0.5)];
  }

  // Where balls are now: solid ones first, then those one can see through, from far to near.
  drawBalls(poses) {
    const eye = this.camera.eye(), placed = this.balls.map((ball) => {
      const k = Math.max(ball.t.findLastIndex((t) => t <= this.time), 0), next = Math.min(k + 1, ball.t.length - 1);
      const part = next > k ? (this.time - ball.t[k]) / (ball.t[next] - ball.t[k]) : 0, mixed = (a, b) => a + part * (b - a);
      const own = [0, 1, 2].map((i) => mixed(ball.at[3 * k + i], ball.at[3 * next + i]));
      const at = point(bodyPose(poses, ball.body), own), away = add(at, eye, -1);
      return { at, radius: mixed(ball.radius[k], ball.radius[next]), color: ball.color, away: dot(away, away) };
    });
    placed.sort((a, b) => (b.color[3] >= 1) - (a.color[3] >= 1) || b.away - a.away);
    placed.forEach((ball) => this.picture.drawBall(ball.at, ball.radius, ball.color));
  }

  // Arrows as they are from the last of their times on.
  drawArrows() {
    for (const one of this.arrows) {
      const k = Math.max(one.t.findLastIndex((t) => t <= this.time), 0), segments = one.segments.subarray(30 * k, 30 * (k + 1));
      if (segments.some((x) => x)) this.picture.drawLine(segments, one.color, 4, { separate: true });
    }
  }

  drawPaths() {
    const { picture } = this, { path, background } = THEMES[this.theme];
    const faint = [...add(scaled(background, 0.65), path.slice(0, 3), 0.35), 1];
    this.paths.forEach((p) => picture.drawLine(p.points, p.color, 2.5));
    if (!this.trace) return;
    const next = this.motion.index(Math.min(this.time, this.motion.duration)) + 1;
    const here = point(bodyPose(this.poses(), this.data.trace.body), this.data.trace.point);
    picture.drawLine([...here, ...this.trace.subarray(3 * next)], faint, 3);
    picture.drawLine([...this.trace.subarray(0, 3 * next), ...here], path, 4);
  }
}
