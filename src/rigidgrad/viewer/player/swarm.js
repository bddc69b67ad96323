// Robots that swing: states stay on the GPU from step to step, and are drawn from where they are.
const byId = (id) => document.getElementById(id);
const STEPS = Math.max(1, Math.round(1 / 60 / numbers.dt));
const camera = {yaw: 0.7, pitch: 0.25, distance: 3, height: 0.5};

function gaussian() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

function matrix(aspect) { // from the world, z up, to the screen; columns one after the other
  const {yaw, pitch, distance, height} = camera;
  const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
  const rows = [[-sy, cy, 0], [-cy * sp, -sy * sp, cp], [cy * cp, sy * cp, sp]]; // right, up, towards the eye
  const near = 0.05, far = 100, f = 1.8;
  const shift = (r) => -r[2] * height;
  const [x, y, z] = rows.map((r) => [...r, shift(r)]);
  z[3] -= distance;
  const k = far / (near - far);
  const out = new Float32Array(16);
  for (let j = 0; j < 4; ++j) {
    out.set([x[j] * f / aspect, y[j] * f, z[j] * k, -z[j]], 4 * j);
  }
  out[14] += near * k;
  return out;
}

const table = (name, type, values) => "const " + name + " = array<" + type + ", " + values.length + ">(" + values.join(", ") + ");\n";

const drawing = () => table("ends", "u32", numbers.edges.flat().map((k) => k + "u")) +
  table("column", "i32", numbers.points.map(([column]) => column)) +
  table("fixed", "f32", numbers.points.map(([, value]) => value.toExponential(8) + "f")) + `
struct View { matrix: mat4x4f, count: vec4u }
@group(0) @binding(0) var<storage, read> points: array<f32>;
@group(0) @binding(1) var<uniform> view: View;
struct Vertex { @builtin(position) position: vec4f, @location(0) color: vec4f }
fn coordinate(k: u32, i: u32) -> f32 {
  let c = column[k];
  if (c < 0) { return fixed[k]; }
  return points[u32(c) * view.count.x + i];
}
@vertex fn corner(@builtin(vertex_index) v: u32, @builtin(instance_index) i: u32) -> Vertex {
  let p = 3u * ends[v];
  let place = vec4f(coordinate(p, i), coordinate(p + 1u, i), coordinate(p + 2u, i), 1.0);
  let hue = f32(i) / f32(view.count.x);
  let color = 0.55 + 0.45 * cos(6.2832 * (hue + vec3f(0.0, 0.33, 0.67)));
  return Vertex(view.matrix * place, vec4f(color, f32(view.count.y) / 255.0));
}
@fragment fn paint(@location(0) color: vec4f) -> @location(0) vec4f {
  return vec4f(color.rgb * color.a, color.a);
}`;

class Swarm {
  constructor(robot) {
    this.device = robot.device;
    this.step = new Runner(this.device, "step", functions.step);
    this.skeleton = new Runner(this.device, "skeleton", functions.skeleton);
    this.step.prepare();
    this.skeleton.prepare();
    this.context = canvas.getContext("webgpu");
    this.format = navigator.gpu.getPreferredCanvasFormat();
    this.context.configure({device: this.device, format: this.format, alphaMode: "opaque"});
    const module = this.device.createShaderModule({code: drawing()});
    const add = {srcFactor: "one", dstFactor: "one-minus-src-alpha"};
    this.pipeline = this.device.createRenderPipeline({
      layout: "auto", primitive: {topology: "line-list"},
      vertex: {module, entryPoint: "corner"},
      fragment: {module, entryPoint: "paint", targets: [{format: this.format, blend: {color: add, alpha: add}}]},
    });
    this.view = this.device.createBuffer({size: 80, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST});
  }

  start(count, spread, friction) {
    const {device, step, skeleton} = this, {nv, dt, q} = numbers;
    this.count = count;
    for (const f of [step, skeleton]) {
      f.states = 0; // columns are as long as there are robots
      f.reserve(count);
      device.queue.writeBuffer(f.size, 0, new Uint32Array([count, 0, 0, 0]));
    }
    const x = new Float32Array((2 * nv + 2) * count);
    for (let i = 0; i < count; ++i) {
      for (let k = 0; k < nv; ++k) x[k * count + i] = q[k] + (i ? spread * gaussian() : 0);
    }
    x.fill(dt, 2 * nv * count, (2 * nv + 1) * count);
    device.queue.writeBuffer(step.x, 0, x);
    this.rub(friction);
    this.group = device.createBindGroup({
      layout: this.pipeline.getBindGroupLayout(0),
      entries: [{binding: 0, resource: {buffer: skeleton.y}}, {binding: 1, resource: {buffer: this.view}}],
    });
    this.taken = 0;
  }

  rub(friction) {
    this.device.queue.writeBuffer(this.step.x, 4 * (2 * numbers.nv + 1) * this.count, new Float32Array(this.count).fill(friction));
  }

  advance(steps) {
    const encoder = this.device.createCommandEncoder(), bytes = 4 * this.count;
    for (let s = 0; s < steps; ++s) {
      this.step.encode(encoder, this.count);
      numbers.moving.forEach((k, o) => encoder.copyBufferToBuffer(this.step.y, o * bytes, this.step.x, k * bytes, bytes));
    }
    encoder.copyBufferToBuffer(this.step.x, 0, this.skeleton.x, 0, 2 * numbers.nv * bytes);
    this.skeleton.encode(encoder, this.count);
    this.device.queue.submit([encoder.finish()]);
    this.taken += steps;
  }

  draw() {
    const ratio = Math.min(2, devicePixelRatio), [w, h] = [canvas.clientWidth, canvas.clientHeight].map((k) => Math.max(1, Math.round(k * ratio)));
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, {width: w, height: h});
    const opacity = Math.round(Math.min(255, Math.max(6, 40000 / this.count)));
    this.device.queue.writeBuffer(this.view, 0, matrix(w / h));
    this.device.queue.writeBuffer(this.view, 64, new Uint32Array([this.count, opacity, 0, 0]));
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginRenderPass({colorAttachments: [{
      view: this.context.getCurrentTexture().createView(), clearValue: {r: 0.05, g: 0.067, b: 0.09, a: 1}, loadOp: "clear", storeOp: "store",
    }]});
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.group);
    pass.draw(2 * numbers.edges.length, this.count);
    pass.end();
    this.device.queue.submit([encoder.finish()]);
  }

  async states() { // [q, v] of all robots, a column each, as they are now
    const size = 8 * numbers.nv * this.count;
    const read = this.device.createBuffer({size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ});
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.step.x, 0, read, 0, size);
    this.device.queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ);
    const found = new Float32Array(read.getMappedRange().slice(0));
    read.destroy();
    return found;
  }
}

async function main() {
  const swarm = new Swarm(await open());
  globalThis.swarm = swarm;
  let running = true, shown = performance.now(), since = 0;
  const inputs = {count: byId("count"), spread: byId("spread"), friction: byId("friction")};
  inputs.count.value = Math.round(Math.log2(numbers.count));
  const read = () => {
    byId("count_value").textContent = (1 << inputs.count.value).toLocaleString();
    for (const name of ["spread", "friction"]) byId(name + "_value").textContent = inputs[name].value;
  };
  const drop = () => { read(); swarm.start(1 << inputs.count.value, +inputs.spread.value, +inputs.friction.value); since = 0; shown = performance.now(); };
  inputs.count.oninput = inputs.spread.oninput = drop;
  inputs.friction.oninput = () => { read(); swarm.rub(+inputs.friction.value); };
  byId("drop").onclick = drop;
  byId("pause").onclick = () => { running = !running; byId("pause").textContent = running ? "Pause" : "Go on"; };
  canvas.onpointermove = (e) => {
    if (!e.buttons) return;
    camera.yaw -= e.movementX / 200;
    camera.pitch = Math.max(-1.5, Math.min(1.5, camera.pitch + e.movementY / 200));
  };
  canvas.onwheel = (e) => { camera.distance = Math.max(0.3, Math.min(50, camera.distance * Math.exp(e.deltaY / 1000))); };
  drop();
  const frame = async () => {
    if (running) { swarm.advance(STEPS); since += STEPS; }
    swarm.draw();
    await swarm.device.queue.onSubmittedWorkDone();
    const now = performance.now();
    if (now - shown > 500) {
      const rate = swarm.count * since / (now - shown) * 1000;
      byId("state").textContent = running ? Math.round(rate).toLocaleString() + " steps of robots per second on this GPU, float32" : "Paused";
      [shown, since] = [now, 0];
    }
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
main().catch((error) => { byId("state").textContent = error.message; });
