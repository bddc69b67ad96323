// A robot's functions on the GPU of a browser, Node with WebGPU, or Deno, in float32.
//
//   const robot = await open();                       // the first GPU; open(device) takes a GPUDevice of yours
//   const {tau} = await robot.rnea({q, v, a}, n);     // Float32Array each, n rows one after the other
//
// Buffers grow to the largest batch and are used again. Calls of one function wait for each other.

const THREADS = $threads, GROUPS = $groups;

export async function open(device) {
  if (!device) {
    if (!globalThis.navigator?.gpu) throw new Error("there is no WebGPU here: a page needs https, localhost or a file, and a recent browser");
    const adapter = await navigator.gpu.requestAdapter({powerPreference: "high-performance"});
    if (!adapter) throw new Error("there is no GPU for WebGPU on this machine");
    const {maxBufferSize, maxStorageBufferBindingSize} = adapter.limits;
    device = await adapter.requestDevice({requiredLimits: {maxBufferSize, maxStorageBufferBindingSize}});
  }
  const robot = {device, functions};
  for (const [name, f] of Object.entries(functions)) {
    const runner = new Runner(device, name, f);
    robot[name] = (inputs, n) => runner.run(inputs, n);
  }
  return robot;
}

class Runner {
  constructor(device, name, f) {
    Object.assign(this, {device, name, f, states: 0, last: Promise.resolve()});
    this.numbers = {x: sum(f.inputs), y: f.results.reduce((k, r) => k + r.length, 0), work: f.work};
  }

  run(inputs, n) {
    const rows = Object.entries(this.f.inputs).map(([key, size]) => {
      const given = inputs[key];
      if (!given || given.length !== n * size) {
        throw new Error(this.name + ": " + key + " needs " + n + " rows of " + size + " numbers, not " + (given ? given.length + " numbers" : "nothing"));
      }
      return [given, size];
    });
    const mine = this.last.then(() => this.chunks(rows, n));
    this.last = mine.catch(() => {});
    return mine;
  }

  async chunks(rows, n) {
    this.prepare();
    const {x, y, work} = this.numbers;
    const bytes = Math.min(this.device.limits.maxBufferSize, this.device.limits.maxStorageBufferBindingSize);
    const most = Math.min(Math.floor(bytes / 4 / Math.max(x, y, work, 1)), GROUPS * THREADS);
    const outputs = {};
    for (const [key, size] of Object.entries(this.f.outputs)) outputs[key] = new Float32Array(n * size);
    for (let start = 0; start < n; start += most) {
      const count = Math.min(most, n - start);
      this.scatter(await this.dispatch(this.columns(rows, start, count), count), outputs, start, count);
    }
    return outputs;
  }

  prepare() {
    if (this.passes) return;
    const {device} = this;
    const kinds = ["read-only-storage", "storage", "storage", "uniform"];
    this.layout = device.createBindGroupLayout({
      entries: kinds.map((type, binding) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}})),
    });
    const layout = device.createPipelineLayout({bindGroupLayouts: [this.layout]});
    this.passes = this.f.passes.map((code) => device.createComputePipeline({
      layout, compute: {module: device.createShaderModule({code: prelude + code}), entryPoint: "main"},
    }));
    this.size = device.createBuffer({size: 16, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST});
  }

  columns(rows, start, count) { // number k of state i at k * count + i, as shaders read it
    const x = new Float32Array(this.numbers.x * count);
    let column = 0;
    for (const [given, size] of rows) {
      for (let i = 0; i < count; ++i) {
        for (let k = 0; k < size; ++k) x[(column + k) * count + i] = given[(start + i) * size + k];
      }
      column += size;
    }
    return x;
  }

  async dispatch(x, count) {
    const {device} = this;
    if (!this.numbers.y) return new Float32Array(0);
    this.reserve(count);
    device.queue.writeBuffer(this.size, 0, new Uint32Array([count, 0, 0, 0]));
    device.queue.writeBuffer(this.x, 0, x);
    const encoder = device.createCommandEncoder();
    this.encode(encoder, count);
    const bytes = 4 * this.numbers.y * count;
    encoder.copyBufferToBuffer(this.y, 0, this.read, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await this.read.mapAsync(GPUMapMode.READ, 0, bytes);
    const y = new Float32Array(this.read.getMappedRange(0, bytes).slice(0));
    this.read.unmap();
    return y;
  }

  encode(encoder, count) { // all passes, on what lies in the buffers
    const pass = encoder.beginComputePass();
    pass.setBindGroup(0, this.group);
    for (const pipeline of this.passes) {
      pass.setPipeline(pipeline);
      pass.dispatchWorkgroups(Math.ceil(count / THREADS));
    }
    pass.end();
  }

  reserve(count) {
    if (count <= this.states) return;
    const {device} = this, {STORAGE, COPY_DST, COPY_SRC, MAP_READ} = GPUBufferUsage;
    for (const old of [this.x, this.y, this.work, this.read]) old?.destroy();
    const buffer = (numbers, usage) => device.createBuffer({size: 4 * Math.max(numbers, 1) * count, usage});
    this.states = count;
    this.x = buffer(this.numbers.x, STORAGE | COPY_DST | COPY_SRC);
    this.y = buffer(this.numbers.y, STORAGE | COPY_SRC);
    this.work = buffer(this.numbers.work, STORAGE);
    this.read = buffer(this.numbers.y, COPY_DST | MAP_READ);
    const buffers = [this.x, this.y, this.work, this.size];
    this.group = device.createBindGroup({layout: this.layout, entries: buffers.map((b, binding) => ({binding, resource: {buffer: b}}))});
  }

  scatter(y, outputs, start, count) { // results that are the same for all states come from here
    let column = 0;
    Object.entries(this.f.outputs).forEach(([key, size], o) => {
      const target = outputs[key];
      for (const [value, places] of this.f.constants[o]) {
        if (value) for (let i = start; i < start + count; ++i) for (const k of places) target[i * size + k] = value;
      }
      for (const k of this.f.results[o]) {
        const first = column++ * count;
        for (let i = 0; i < count; ++i) target[(start + i) * size + k] = y[first + i];
      }
    });
  }
}

const sum = (sizes) => Object.values(sizes).reduce((a, b) => a + b, 0);
