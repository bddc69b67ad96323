// The picture, by WebGL 2: solids with shadows, a ground with a grid, thick lines.

const SOLID_VERTEX = `#version 300 es
  layout(location = 0) in vec3 position; layout(location = 1) in vec3 normal;
  uniform mat4 camera, place; uniform vec3 light; uniform float ground; uniform bool shadow;
  out vec3 world, facing;
  void main() {
    world = (place * vec4(position, 1.0)).xyz;
    facing = mat3(place) * normal;
    if (shadow) world -= light * (world.z - ground) / light.z;
    gl_Position = camera * vec4(world, 1.0);
  }`;
const SOLID_FRAGMENT = `#version 300 es
  precision highp float;
  in vec3 world, facing; out vec4 result;
  uniform vec4 color; uniform vec3 light, eye; uniform bool shadow, sheet;
  void main() {
    if (shadow) { result = color; return; }
    vec3 n = normalize(facing), view = normalize(eye - world), middle = normalize(light + view);
    if (sheet && !gl_FrontFacing) n = -n; // files of meshes do not agree on which side is outside
    float sun = max(dot(n, light), 0.0), sky = 0.5 + 0.5 * n.z, front = max(dot(n, view), 0.0), shine = pow(max(dot(n, middle), 0.0), 40.0);
    result = vec4(color.rgb * (0.3 + 0.24 * sky + 0.3 * front + 0.36 * sun) + 0.14 * shine * sun, color.a);
  }`;
const GROUND_VERTEX = `#version 300 es
  layout(location = 0) in vec2 corner;
  uniform mat4 camera; uniform vec3 middle; uniform float reach;
  out vec2 spot;
  void main() { spot = middle.xy + reach * corner; gl_Position = camera * vec4(spot, middle.z, 1.0); }`;
const GROUND_FRAGMENT = `#version 300 es
  precision highp float;
  in vec2 spot; out vec4 result;
  uniform vec3 middle; uniform float reach, cell; uniform vec4 color;
  float lines(float size) {
    vec2 c = spot / size, away = abs(fract(c - 0.5) - 0.5) / fwidth(c);
    return 1.0 - min(min(away.x, away.y), 1.0);
  }
  void main() {
    float fade = 1.0 - smoothstep(0.25, 1.0, length(spot - middle.xy) / reach);
    result = vec4(color.rgb, color.a * fade * max(0.45 * lines(cell), lines(5.0 * cell)));
  }`;
const LINE_VERTEX = `#version 300 es
  layout(location = 0) in vec2 corner; layout(location = 1) in vec3 from; layout(location = 2) in vec3 to;
  uniform mat4 camera; uniform vec2 screen; uniform float width;
  void main() {
    vec4 a = camera * vec4(from, 1.0), b = camera * vec4(to, 1.0);
    vec2 along = normalize((b.xy / b.w - a.xy / a.w) * screen + vec2(1e-6, 0.0));
    vec4 p = corner.x < 0.0 ? a : b;
    p.xy += (vec2(-along.y, along.x) * corner.y + along * corner.x * 0.5) * width / screen * p.w;
    gl_Position = p;
  }`;
const LINE_FRAGMENT = `#version 300 es
  precision highp float;
  uniform vec4 color; out vec4 result;
  void main() { result = color; }`;

const LIGHT = unit([0.35, -0.3, 1]);
const FAINT = 0.2; // what is as faint casts no shadow: a plane would take that of all above it
const QUAD = [-1, -1, 1, -1, 1, 1, -1, -1, 1, 1, -1, 1];

class Picture {
  constructor(canvas, shapes) {
    const gl = (this.gl = canvas.getContext("webgl2", { antialias: true, stencil: true, alpha: true, premultipliedAlpha: false }));
    if (!gl) throw new Error("this browser has no WebGL 2");
    this.canvas = canvas;
    this.programs = {
      solid: this.program(SOLID_VERTEX, SOLID_FRAGMENT),
      ground: this.program(GROUND_VERTEX, GROUND_FRAGMENT),
      line: this.program(LINE_VERTEX, LINE_FRAGMENT),
    };
    const kept = new Map(); // like shapes share their triangles
    this.solids = shapes.map((shape) => {
      const key = shape.corners || shape.mesh || JSON.stringify([shape.kind, shape.size]);
      if (!kept.has(key)) kept.set(key, this.triangles(solid(shape)));
      return { ...shape, ...kept.get(key) };
    });
    this.ball = this.triangles(solid({ kind: "sphere", size: [1] }));
    this.quad = this.buffer(QUAD);
    this.ground = gl.createVertexArray();
    gl.bindVertexArray(this.ground);
    this.attribute(0, 2, 8, 0);
    this.segments = gl.createBuffer();
    this.line = gl.createVertexArray();
    gl.bindVertexArray(this.line);
    this.attribute(0, 2, 8, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.segments);
    this.attribute(1, 3, 12, 0), this.attribute(2, 3, 12, 12);
    gl.vertexAttribDivisor(1, 1), gl.vertexAttribDivisor(2, 1);
  }

  program(vertex, fragment) {
    const gl = this.gl, program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) || "the shaders do not link");
    const uniforms = {};
    for (let i = 0; i < gl.getProgramParameter(program, gl.ACTIVE_UNIFORMS); i++) {
      const { name } = gl.getActiveUniform(program, i);
      uniforms[name] = gl.getUniformLocation(program, name);
    }
    return { program, uniforms };
  }

  buffer(numbers) {
    const gl = this.gl, buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(numbers), gl.STATIC_DRAW);
    return buffer;
  }

  attribute(index, size, stride, offset) {
    this.gl.enableVertexAttribArray(index);
    this.gl.vertexAttribPointer(index, size, this.gl.FLOAT, false, stride, offset);
  }

  triangles(numbers) {
    const gl = this.gl, array = gl.createVertexArray();
    gl.bindVertexArray(array);
    this.buffer(numbers);
    this.attribute(0, 3, 24, 0), this.attribute(1, 3, 24, 12);
    return { array, count: numbers.length / 6 };
  }

  // `free`: what part of the canvas nothing covers, from the left and from the top
  begin(camera, colors, free) {
    const gl = this.gl, ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, Math.round(this.canvas.clientWidth * ratio)), height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (this.canvas.width !== width || this.canvas.height !== height) (this.canvas.width = width), (this.canvas.height = height);
    gl.viewport(0, 0, width, height);
    gl.clearColor(...colors.background, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT | gl.STENCIL_BUFFER_BIT);
    gl.enable(gl.DEPTH_TEST), gl.enable(gl.BLEND), gl.enable(gl.CULL_FACE);
    gl.depthFunc(gl.LEQUAL);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE);
    this.pixels = [width, height], this.ratio = ratio, this.colors = colors;
    this.matrix = camera.matrix(width / height, free), this.eye = camera.eye();
  }

  use(name) {
    const { program, uniforms } = this.programs[name];
    this.gl.useProgram(program);
    this.gl.uniformMatrix4fv(uniforms.camera, false, this.matrix);
    return uniforms;
  }

  // `surrounded`: with those around the robot
  drawSolids(poses, floor, surrounded) {
    const gl = this.gl, u = this.use("solid");
    gl.uniform3fv(u.light, LIGHT), gl.uniform3fv(u.eye, this.eye), gl.uniform1f(u.ground, floor);
    const shown = surrounded ? this.solids : this.solids.filter((s) => !s.around);
    const placed = shown.map((s) => ({ ...s, pose: compose(bodyPose(poses, s.body), s.placement) }));
    let shadows = false;
    const draw = (s, color) => {
      const p = s.pose;
      gl.uniformMatrix4fv(u.place, false, [p[0], p[3], p[6], 0, p[1], p[4], p[7], 0, p[2], p[5], p[8], 0, p[9], p[10], p[11], 1]);
      gl.uniform4fv(u.color, color);
      gl.bindVertexArray(s.array);
      if (s.mesh) gl.uniform1i(u.sheet, 1), gl.disable(gl.CULL_FACE);
      gl.drawArrays(gl.TRIANGLES, 0, s.count);
      if (s.mesh) gl.uniform1i(u.sheet, 0), shadows || gl.enable(gl.CULL_FACE);
    };
    gl.uniform1i(u.shadow, 0);
    placed.filter((s) => s.color[3] >= 1).forEach((s) => draw(s, s.color));
    // flattened onto the ground, each spot darkened once
    gl.uniform1i(u.shadow, 1), (shadows = true);
    gl.depthMask(false), gl.disable(gl.CULL_FACE), gl.enable(gl.STENCIL_TEST);
    gl.stencilFunc(gl.EQUAL, 0, 0xff), gl.stencilOp(gl.KEEP, gl.KEEP, gl.INCR);
    if (this.eye[2] > floor) placed.filter((s) => s.color[3] > FAINT).forEach((s) => draw(s, this.colors.shadow));
    gl.disable(gl.STENCIL_TEST), gl.enable(gl.CULL_FACE);
    gl.uniform1i(u.shadow, 0), (shadows = false);
    placed.filter((s) => s.color[3] < 1).forEach((s) => draw(s, s.color));
    gl.depthMask(true);
  }

  drawBall(centre, radius, color) {
    const gl = this.gl, u = this.use("solid");
    gl.uniform3fv(u.light, LIGHT), gl.uniform3fv(u.eye, this.eye), gl.uniform1i(u.shadow, 0);
    gl.uniformMatrix4fv(u.place, false, [radius, 0, 0, 0, 0, radius, 0, 0, 0, 0, radius, 0, ...centre, 1]);
    gl.uniform4fv(u.color, color);
    gl.bindVertexArray(this.ball.array);
    gl.depthMask(color[3] >= 1); // what one can see through hides nothing
    gl.drawArrays(gl.TRIANGLES, 0, this.ball.count);
    gl.depthMask(true);
  }

  drawGround(middle, reach, cell) {
    const gl = this.gl, u = this.use("ground");
    gl.uniform3fv(u.middle, middle), gl.uniform1f(u.reach, reach), gl.uniform1f(u.cell, cell), gl.uniform4fv(u.color, this.colors.grid);
    gl.depthMask(false), gl.disable(gl.CULL_FACE);
    gl.bindVertexArray(this.ground);
    gl.drawArrays(gl.TRIANGLES, 0, 6);
    gl.depthMask(true), gl.enable(gl.CULL_FACE);
  }

  // points: numbers x, y, z of a polyline, or of separate segments
  drawLine(points, color, width, { separate = false, through = false } = {}) {
    const gl = this.gl, u = this.use("line"), count = separate ? points.length / 6 : points.length / 3 - 1;
    if (count < 1) return;
    gl.uniform2fv(u.screen, scaled(this.pixels, 0.5)), gl.uniform1f(u.width, (width * this.ratio) / 2), gl.uniform4fv(u.color, color);
    gl.bindVertexArray(this.line);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.segments);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(points), gl.DYNAMIC_DRAW);
    const stride = separate ? 24 : 12; // a polyline's points are both ends and beginnings
    this.attribute(1, 3, stride, 0), this.attribute(2, 3, stride, 12);
    if (through) gl.disable(gl.DEPTH_TEST);
    gl.disable(gl.CULL_FACE);
    gl.drawArraysInstanced(gl.TRIANGLES, 0, 6, count);
    gl.enable(gl.DEPTH_TEST), gl.enable(gl.CULL_FACE);
  }
}
