// An exported page: state, controls and drawings around decoder.js and plane.js, which stand before it.
const page = JSON.parse(document.getElementById("contents").textContent);
const { look, factors } = page;
const $ = (selector) => document.querySelector(selector);
const minus = (text) => String(text).replace("-", "\u2212");
const fixed = (value, digits = 2) => (value === null || !Number.isFinite(value) ? "–" : minus(value.toFixed(digits)));
const loaded = new Map();
const ANGLES = Array.from({ length: 13 }, (_, k) => 7.5 * k);
const STEP = 0.05, KEY_STEP = 0.1;

function element(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside);
  return made;
}

// ---- models and state

function member(k = state.member) {
  if (!loaded.has(k)) {
    const model = page.members[k];
    const weights = unpack(document.getElementById(`weights-${k}`).textContent, model.half);
    const table = (text, width) => {
      const flat = unpack(text, false);
      return Array.from({ length: flat.length / width }, (_, n) => flat.subarray(n * width, (n + 1) * width));
    };
    const size = model.latent, active = model.active.length;
    loaded.set(k, {
      ...model,
      weights,
      codes: table(model.codes, size),
      covariances: table(model.covariances, size * size),
      pullbacks: table(model.pullbacks, active * active),
    });
  }
  return loaded.get(k);
}

function firstState(k) {
  const { latent, active, colour } = page.members[k];
  const [first, second] = [...active, ...Array(latent).keys(), 0].filter((one, n, all) => all.indexOf(one) === n);
  const plane = [first, second ?? first];
  return { member: k, z: Array(latent).fill(0), item: null, rotation: [...plane, 0], plane, colour };
}

function readState(text) {
  const query = new URLSearchParams(text.replace(/^#/, ""));
  const numbers = (name) => (query.get(name) || "").split(",").map(Number);
  const below = (value, size) => Number.isInteger(value) && value >= 0 && value < size;
  const chosen = Number(query.get("member") || page.first);
  const found = firstState(below(chosen, page.members.length) ? chosen : page.first), size = found.z.length;
  const z = numbers("z"), rotated = numbers("rotation"), item = query.has("item") ? Number(query.get("item")) : null;
  if (z.length === size && z.every((value) => Math.abs(value) < 1e6)) found.z = z;
  if (rotated.length === 3 && rotated.slice(0, 2).every((k) => below(k, size)) && rotated[2] >= 0 && rotated[2] <= 90)
    found.rotation = rotated;
  if (item !== null && page.index.includes(item)) found.item = page.index.indexOf(item);
  const [, a, b, colour] = (query.get("map") || "").split(",").map(Number);
  if (below(a, size) && below(b, size) && below(colour, factors.length + size))
    Object.assign(found, { plane: [a, b], colour });
  return found;
}

function link() {
  const { z, rotation: turned, plane, colour, item } = state;
  const parts = {
    member: state.member, z: z.map((value) => Number(value.toPrecision(6))), rotation: turned,
    map: ["latents", ...plane, colour],
  };
  if (item !== null) parts.item = page.index[item];
  return "#" + Object.entries(parts).map(([name, value]) => `${name}=${value}`).join("&");
}

let saving;
function keep(push = false) {
  clearTimeout(saving);
  if (push) history.pushState(null, "", link());
  else saving = setTimeout(() => history.replaceState(null, "", link()), 150);
}

const times = (rows, z) => rows.map((row) => row.reduce((sum, value, k) => sum + value * z[k], 0));
const axes = () => rotation(state.z.length, state.rotation);
const shown = () => times(axes(), state.z);
function modelPoint(values) {
  const rows = axes();
  return values.map((_, j) => rows.reduce((sum, row, i) => sum + row[j] * values[i], 0));
}
function latentName(k, plain = false) {
  const turned = !plain && state.rotation[2] && state.rotation.slice(0, 2).includes(k);
  return page.members[state.member].names[k] + (turned ? "′" : "");
}

// ---- pictures

function canvasSize() {
  if (!look.picture) return [Math.max(6, Math.floor(132 / look.count)) * look.count, 96];
  return [look.side[0] * (look.channels === 3 ? 1 : look.channels), look.side[1]];
}

function paint(canvas, colour, values) {
  const [width, height] = canvasSize();
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height), data = image.data;
  const pixels = look.side[0] * look.side[1];
  const put = (n, r, g, b) => data.set([r, g, b, 255], 4 * n);
  if (!look.picture) bars(put, colour, values, width, height);
  else
    for (let n = 0; n < width * height; n++) {
      const row = Math.floor(n / width), column = n % width;
      const at = row * look.side[0] + (column % look.side[0]);
      const channel = look.channels === 3 ? 0 : Math.floor(column / look.side[0]);
      const value = (c) => values[c * pixels + at];
      if (look.channels === 3) put(n, ...colour(value(0), value(1), value(2)));
      else put(n, ...colour(value(channel)));
    }
  context.putImageData(image, 0, 0);
}

function bars(put, colour, values, width, height) {
  const [low, high] = colour.range, step = width / values.length, { negative, zero, positive } = page.signs;
  const level = (v) => Math.round(((high - Math.min(Math.max(v, low), high)) / (high - low)) * (height - 2)) + 1;
  values.forEach((value, k) => {
    const [top, bottom] = [level(value), level(0)].sort((a, b) => a - b);
    for (let c = k * step; c < (k + 1) * step; c++)
      for (let r = 0; r < height; r++) {
        const inside = r >= top && r <= bottom && c - k * step < step - Math.max(1, Math.floor(step / 8));
        put(r * width + c, ...(inside ? (value < 0 ? negative : positive) : zero));
      }
  });
}

function plainColour() {
  const unit = (v) => Math.round(255 * Math.min(Math.max((v - look.low) / (look.high - look.low), 0), 1));
  const colour = (r, g, b) => (g === undefined ? Array(3).fill(unit(r)) : [unit(r), unit(g), unit(b)]);
  return Object.assign(colour, { range: [look.low, look.high] });
}

function signedColour(scale) {
  const part = (v) => Math.min(Math.max(v / (scale || 1), -1), 1), { negative, zero, positive } = page.signs;
  const colour = (r, g, b) => {
    if (g !== undefined) return [r, g, b].map((v) => Math.round(127.5 * (1 + part(v))));
    const share = part(r), end = share < 0 ? negative : positive;
    return zero.map((v, k) => Math.round(v + Math.abs(share) * (end[k] - v)));
  };
  return Object.assign(colour, { range: [-scale, scale] });
}

// the items in one picture, or none
const sheet = page.sheet && Object.assign(new Image(), { src: page.sheet });
function paintItem(canvas, k) {
  const [width, height] = canvasSize();
  Object.assign(canvas, { width, height });
  const across = k % page.across, down = Math.floor(k / page.across);
  const source = [across * width, down * height, width, height];
  const put = () => canvas.getContext("2d").drawImage(sheet, ...source, 0, 0, width, height);
  sheet.complete ? put() : sheet.addEventListener("load", put, { once: true });
}

// ---- controls

function range(label, spoken, value, low, high, step, unit, changed) {
  const box = element("input", { type: "range", min: low, max: high, step, "aria-label": spoken });
  const output = element("output");
  const made = element("label", { class: "control range" }, element("span", { class: "name" }, label), box, output);
  made.put = (now, name = label) => {
    box.value = now;
    made.tell(now);
    made.firstChild.textContent = name;
  };
  made.tell = (now) => {
    output.textContent = fixed(now, step < 1 ? 2 : 0) + unit;
    box.setAttribute("aria-valuetext", output.textContent);
  };
  box.oninput = () => {
    made.tell(box.valueAsNumber);
    changed(box.valueAsNumber);
  };
  made.put(value);
  return made;
}

function choice(label, options, value, changed) {
  const box = element("select", { "aria-label": label });
  for (const [key, text] of options) box.append(element("option", { value: key }, text));
  box.value = value;
  box.onchange = () => changed(Number(box.value));
  return element("label", { class: "control choice" }, element("span", { class: "name" }, label), box);
}

// ---- parts of the page

let state, plane;
const sliders = new Map();

function buildModel() {
  const { latent, active, limit, name, about, trial } = member(), now = shown();
  const slide = (k) => {
    const move = (value) => {
      const values = shown();
      values[k] = value;
      moveTo(modelPoint(values), null);
    };
    sliders.set(k, range(latentName(k), `Latent ${latentName(k, true)}`, now[k], -limit, limit, STEP, "", move));
    return sliders.get(k);
  };
  sliders.clear();
  const open = active.length ? active : [0], rest = Array.from({ length: latent }, (_, k) => k).filter((k) => !open.includes(k));
  const parts = active.length ? [] : [element("p", { class: "quiet" }, "No latent is active: all items have the same code.")];
  parts.push(...open.map(slide));
  if (rest.length) {
    const title = `${rest.length} collapsed latent${rest.length > 1 ? "s" : ""}`;
    parts.push(element("details", { class: "collapsed" }, element("summary", {}, title), ...rest.map(slide)));
  }
  $(".sliders .stack").replaceChildren(...parts);
  $(".view .main figcaption").textContent = page.members.length > 1 ? name : "decoded at z";
  $("#about").replaceChildren(...Object.entries(about).flatMap(([term, text]) => [element("dt", {}, term), element("dd", {}, text)]));
  $(".about details").hidden = !trial;
  $(".about pre").textContent = trial || "";
  $(".rotation").classList.toggle("hidden", active.length < 2);
  if (active.length > 1) {
    const names = active.map((k) => [k, latentName(k, true)]), [first, second, degrees] = state.rotation;
    const choose = (place) => (k) => {
      const pair = state.rotation.slice(0, 2);
      pair[place] = k;
      if (pair[0] === pair[1]) pair[1 - place] = state.rotation[place];
      state.rotation = [...pair, state.rotation[2]];
      refreshAll(true);
    };
    const angle = (value) => {
      state.rotation[2] = value;
      refreshAxes();
    };
    $(".rotation .choosers").replaceChildren(
      choice("from", names, first, choose(0)), choice("towards", names, second, choose(1)),
      range("angle", "Angle of the rotation", degrees, 0, 90, 1, "°", angle),
    );
  }
  const latents = Array.from({ length: latent }, (_, k) => [k, latentName(k, true)]);
  const colours = [...factors.map((one, k) => [k, one.name]), ...latents.map(([k, one]) => [k + factors.length, one])];
  const axis = (place) => (k) => {
    state.plane[place] = k;
    drawMap();
    keep();
  };
  const recolour = (k) => {
    state.colour = k;
    drawMap();
    keep();
  };
  $(".map .choosers").replaceChildren(
    choice("across", latents, state.plane[0], axis(0)), choice("up", latents, state.plane[1], axis(1)),
    ...(member().codes.length ? [choice("Colour", colours, state.colour, recolour)] : []),
  );
  $(".map").classList.toggle("hidden", latent < 2);
  $("#random").hidden = !member().codes.length;
}

function drawMap() {
  const { codes, covariances, limit } = member(), rows = axes(), pair = state.plane;
  const points = codes.map((z) => pair.map((k) => rows[k].reduce((sum, value, j) => sum + value * z[j], 0)));
  const cyclic = state.colour < factors.length && factors[state.colour].cyclic;
  let values, name;
  if (state.colour < factors.length) {
    values = page.values.map((row) => row[state.colour]);
    name = factors[state.colour].name;
  } else {
    const k = state.colour - factors.length;
    values = codes.map((z) => rows[k].reduce((sum, value, j) => sum + value * z[j], 0));
    name = latentName(k);
  }
  const low = Math.min(...values), high = Math.max(...values);
  const period = cyclic ? factors[state.colour].size : high - low || 1;
  const size = rows.length;
  const ellipses = covariances.map((flat, n) => {
    const entry = (a, b) => {
      let sum = 0;
      for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) sum += rows[a][i] * rows[b][j] * flat[i * size + j];
      return sum;
    };
    return [...points[page.chosen[n]], [entry(pair[0], pair[0]), entry(pair[0], pair[1]), entry(pair[1], pair[1])]];
  });
  const ramp = page.ramps[cyclic ? "cyclic" : "plain"];
  plane.show({
    points, ellipses, ramp, tints: values.map((value) => (value - low) / period), notes: page.notes,
    frame: [-limit, limit, -limit, limit], ends: [-limit, limit, -limit, limit], labels: pair.map((k) => latentName(k)), cross: true,
  });
  const swatch = element("i", { style: `background: linear-gradient(90deg, ${ramp})` });
  const ends = cyclic ? ["cyclic", ""] : ["low", "high"];
  $(".map .legend").replaceChildren(...(codes.length ? [`${name}: ${ends[0]} `, swatch, ` ${ends[1]}`] : []));
  mark();
}

function mark() {
  const now = shown();
  plane.mark(state.plane.map((k) => now[k]));
}

function drawPicture() {
  const model = member();
  paint($(".view .main canvas"), plainColour(), picture(model, model.weights, state.z));
  const figure = $(".view .item"), has = state.item !== null && sheet;
  figure.classList.toggle("hidden", !has);
  if (has) {
    paintItem(figure.querySelector("canvas"), state.item);
    figure.querySelector("figcaption").textContent = page.notes[state.item];
  }
}

// ---- geometry, in a worker: the newest request only

const source = new Blob([$("#runtime").textContent], { type: "text/javascript" });
let worker, busy = false, wanted = null;
const known = new Set();
try {
  worker = new Worker(URL.createObjectURL(source));
  worker.onmessage = ({ data }) => {
    busy = false;
    if (data.member === state.member) showGeometry(data.found);
    if (wanted) askGeometry();
  };
  worker.onerror = () => {
    worker = null;
    askGeometry();
  };
} catch {
  worker = null;
}

function askGeometry() {
  wanted = null;
  if (busy && worker) {
    wanted = true;
    return;
  }
  const { layers, likelihood, weights, active } = member(), model = { layers, likelihood };
  const request = { member: state.member, z: state.z, latents: active.length ? active : [0], plane: state.rotation };
  if (!worker) return showGeometry(geometry(model, weights, request.z, request.latents, request.plane));
  if (!known.has(state.member)) worker.postMessage({ member: state.member, model, weights });
  known.add(state.member);
  busy = true;
  worker.postMessage(request);
}

function gallery(box, pictures, names, values, scale) {
  while (box.children.length > pictures.length) box.lastChild.remove();
  pictures.forEach((one, k) => {
    if (!box.children[k]) box.append(element("figure", {}, element("canvas", { class: "picture", role: "img" }), element("figcaption", {}, "", element("b"))));
    const [canvas, caption] = box.children[k].children;
    canvas.setAttribute("aria-label", `Change of the picture along ${names[k]}`);
    caption.firstChild.data = `${names[k]} `;
    caption.lastChild.textContent = fixed(values[k], values[k] < 10 ? 2 : 0);
    paint(canvas, signedColour(scale), one);
  });
}

function showGeometry(found) {
  const names = found.latents.map((k) => latentName(k)), model = member(), few = model.active.length < 2;
  const lone = few ? "active latents" : "columns that change anything";
  const why = few || found.cosine === null ? `fewer than two ${lone}` : "two singular values nearly coincide";
  const entries = [
    ["DtO here", few ? null : found.dto, `random ${fixed(model.random_dto)}`],
    ["mean |cos|", few ? null : found.cosine, "0: orthogonal"],
    ["Hadamard gap", few ? null : found.gap, "nats"],
  ];
  const list = element("dl", {});
  for (const [name, value, note] of entries) {
    const said = value === null ? `undefined: ${why}` : note;
    list.append(element("div", {}, element("dt", {}, name), element("dd", {}, value === null ? "—" : fixed(value), element("small", {}, said))));
  }
  const degenerate = found.degenerate && found.cosine !== null && !few;
  $(".numbers").replaceChildren(list, ...(degenerate ? [element("p", {}, "Directions along singular vectors are then nearly arbitrary.")] : []));
  $(".numbers").classList.toggle("undefined", entries[0][1] === null);
  const marks = found.singularValues.map((_, k) => `v${k + 1}`);
  const scale = [...found.columns, ...found.directions].reduce((most, row) => row.reduce((a, v) => Math.max(a, Math.abs(v)), most), 0);
  gallery($("#columns"), found.columns, names, found.norms, scale);
  gallery($("#directions"), found.directions, marks, found.singularValues, scale);
  $("#cosines").replaceChildren(matrixChart(found.cosines, names));
  $("#spectrum").replaceChildren(barChart(found.singularValues, marks));
  $("#cosines").parentElement.classList.toggle("hidden", names.length < 2);
}

// ---- charts, as unseam.charts draws them

function chart(width, height, label) {
  return draw("svg", { class: "chart", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` });
}

function matrixChart(values, names) {
  const side = 170 / names.length, left = 36, head = 22, made = chart(left + 171, head + 171, "|cos| between columns");
  const every = Math.ceil(28 / side);
  names.forEach((name, k) => {
    if (k % every) return;
    made.append(draw("text", { x: left + side * (k + 0.5), y: head / 2, "text-anchor": "middle", "dominant-baseline": "central", class: "soft" }, name));
    made.append(draw("text", { x: left - 8, y: head + side * (k + 0.5), "text-anchor": "end", "dominant-baseline": "central", class: "soft" }, name));
  });
  values.forEach((row, i) =>
    row.forEach((value, j) => {
      const level = i === j || value === null ? "none" : `h${Math.round(value * 10)}`, gap = Math.min(2, side / 10);
      const cell = draw("rect", { x: left + side * j, y: head + side * i, width: side - gap, height: side - gap, rx: gap, class: level });
      cell.append(draw("title", {}, `${names[i]}, ${names[j]}: ${i === j ? "–" : fixed(value, 3)}`));
      made.append(cell);
      if (names.length <= 5) {
        const at = { x: left + side * (j + 0.5) - gap / 2, y: head + side * (i + 0.5) - gap / 2, class: level };
        made.append(draw("text", { ...at, "text-anchor": "middle", "dominant-baseline": "central" }, i === j ? "–" : fixed(value)));
      }
    }),
  );
  return made;
}

function barChart(values, names) {
  const tall = Math.min(24, 170 / values.length), made = chart(205, tall * values.length + 22, "Singular values");
  const top = Math.max(...values) || 1, every = Math.ceil(14 / tall);
  values.forEach((value, k) => {
    const y = tall * (k + 0.5), long = Math.max((value / top) * 110, 1);
    made.append(draw("rect", { x: 34, y: y - tall / 3, width: long, height: (2 * tall) / 3, class: "fill c1" }));
    if (k % every) return;
    made.append(draw("text", { x: 26, y, "text-anchor": "end", "dominant-baseline": "central" }, names[k]));
    made.append(draw("text", { x: 40 + long, y, "dominant-baseline": "central", class: "soft" }, short(value)));
  });
  return made;
}

function rotationCurves() {
  const { active, pullbacks, random_dto: random, mig, error, first } = member(), [a, b, here] = state.rotation;
  if (active.length < 2) return;
  const key = `${state.member},${a},${b}`;
  if (rotationCurves.key !== key) {
    const places = [a, b].map((k) => active.indexOf(k)), size = active.length;
    const measured = places.includes(-1) ? [] : ANGLES.map((angle) => {
      const rows = rotation(size, [...places, angle]);
      const found = pullbacks.map((flat) => {
        const gram = rows.map((row) => row.map((_, j) => row.reduce((sum, v, i) => sum + v * flat[i * size + j], 0)));
        return measure(gram.map((half) => times(rows, half)));
      });
      const mean = (name) => {
        const known = found.map((one) => one[name]).filter((value) => value !== null);
        return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
      };
      return { dto: mean("dto") / random, cosine: mean("cosine") };
    });
    const scores = mig[`${a},${b}`] || (mig[`${b},${a}`] && [...mig[`${b},${a}`]].reverse());
    rotationCurves.rows = [
      ...(error === null ? [] : [["squared error", ANGLES.map(() => error), "c0", 4]]),
      ["DtO / random", measured.map((one) => one.dto), "c4", 2], ["mean |cos|", measured.map((one) => one.cosine), "c1", 2],
      ...(scores ? [["MIG", scores, "c2", 2]] : []),
    ].filter(([, values]) => values.length && values.every(Number.isFinite));
    rotationCurves.key = key;
  }
  const rows = rotationCurves.rows, made = chart(360, 46 * rows.length + 26, "What is measured over the angle of the rotation");
  const across = (angle) => 104 + (angle / 90) * 210;
  made.append(draw("line", { x1: across(here), x2: across(here), y1: 4, y2: 46 * rows.length + 2, class: "rule" }));
  rows.forEach(([name, values, cls, digits], k) => {
    const top = 6 + 46 * k, most = Math.max(...values, 1e-12), y = (value) => top + 34 - (value / most) * 34;
    const central = { "dominant-baseline": "central" };
    made.append(draw("text", { x: 8, y: top + 17, class: "soft", ...central }, name));
    made.append(draw("polyline", { points: values.map((value, n) => `${across(ANGLES[n])},${y(value)}`).join(" "), class: `curve ${cls}` }));
    values.forEach((value, n) => {
      const dot = draw("circle", { cx: across(ANGLES[n]), cy: y(value), r: 2.4, class: `fill ${cls}` });
      dot.append(draw("title", {}, `${name} at ${ANGLES[n]}°: ${fixed(value, digits)}`));
      made.append(dot);
    });
    made.append(draw("text", { x: 356, y: top + 17, "text-anchor": "end", ...central }, fixed(values[Math.round(here / 7.5)], digits)));
  });
  for (const [at, text] of [[0, "0"], [45, "angle, degrees"], [90, "90"]])
    made.append(draw("text", { x: across(at), y: 46 * rows.length + 16, "text-anchor": "middle", class: "soft" }, text));
  $(".rotation .drawing").replaceChildren(made);
}

// ---- movement

function refreshPoint() {
  drawPicture();
  mark();
  askGeometry();
}

function putSliders() {
  const now = shown();
  for (const [k, slider] of sliders) slider.put(now[k], latentName(k));
}

function moveTo(z, item, arrived = false) {
  Object.assign(state, { z, item });
  if (arrived) putSliders();
  refreshPoint();
  keep();
}

function refreshAxes() {
  putSliders();
  drawMap();
  rotationCurves();
  askGeometry();
  keep();
}

function refreshAll(push = false) {
  buildModel();
  drawMap();
  rotationCurves();
  refreshPoint();
  keep(push);
}

function takeItem(k) {
  moveTo(Array.from(member().codes[k]), k, true);
}

function setTheme(kind) {
  const dark = kind === "dark" || (kind === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.body.classList.toggle("body--dark", dark);
  $("#theme").textContent = `Theme: ${kind}`;
}

function start() {
  const box = $("#model select"), themes = ["system", "dark", "light"];
  let theme = 0;
  setTheme("system");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(themes[theme]));
  $("#theme").onclick = () => setTheme(themes[(theme = (theme + 1) % themes.length)]);
  $("#subtitle").textContent = page.subtitle;
  $("#remarks").replaceChildren(...page.remarks.map((line) => element("p", { class: "remark" }, line)));
  document.body.classList.toggle("signals", !look.picture);
  $(".geometry").classList.toggle("signed", look.channels !== 3);
  $("#signs").textContent = page.lead;
  $("#lead").textContent = page.map_lead;
  const sample = page.index.length ? `${page.index.length} items` : "few points";
  $("#sample").textContent = `Estimated from ${sample}, for speed; a report measures on more.`;
  for (const [k, model] of page.members.entries()) box.append(element("option", { value: k }, model.name));
  $("#model").classList.toggle("hidden", page.members.length < 2);
  box.onchange = () => {
    const { item, z, colour } = state, fresh = firstState(Number(box.value));
    state = { ...fresh, colour: colour < factors.length ? colour : fresh.colour };
    if (item !== null) Object.assign(state, { item, z: Array.from(member().codes[item]) });
    else if (z.length === state.z.length) state.z = z;
    refreshAll(true);
  };
  plane = new Plane($(".plane-box"), {
    go: (x, y) => {
      const values = shown();
      [values[state.plane[0]], values[state.plane[1]]] = [x, y];
      moveTo(modelPoint(values), null, true);
    },
    take: takeItem,
    key: ([dx, dy]) => {
      const now = shown(), [a, b] = state.plane;
      now[a] += KEY_STEP * dx;
      now[b] += KEY_STEP * dy;
      moveTo(modelPoint(now), null, true);
    },
  });
  plane.picture = (k) => {
    const canvas = element("canvas", { class: "picture" });
    if (sheet) paintItem(canvas, k);
    return sheet ? [canvas] : [];
  };
  $("#origin").onclick = () => moveTo(state.z.map(() => 0), null, true);
  $("#random").onclick = () => takeItem(Math.floor(Math.random() * member().codes.length));
  const arrive = () => {
    state = readState(location.hash);
    // a page is opened at an item and its reconstruction, which show more than the origin
    const { codes } = member();
    const item = Math.floor(codes.length / 2);
    if (!location.hash && codes.length) Object.assign(state, { item, z: Array.from(codes[item]) });
    box.value = state.member;
    refreshAll();
  };
  addEventListener("popstate", arrive);
  addEventListener("hashchange", arrive);
  arrive();
}

start();
