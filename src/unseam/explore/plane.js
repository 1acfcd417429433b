// The map of codes: dots, ellipses, a curve and the current point in a plane that can be clicked, dragged, zoomed and
// keyed. The live explorer uses it as a component, an exported page as it is.
const SIDE = 360, LEFT = 40, RIGHT = 10, TOP = 10, BOTTOM = 36, NEAR = 14;
const WIDE = SIDE - LEFT - RIGHT, TALL = SIDE - TOP - BOTTOM;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const CLOSEST = 40;

// paper is light
for (const [when, dark] of [["beforeprint", false], ["afterprint", true]])
  addEventListener(when, () => {
    const { classList, dataset } = document.body;
    if (!dark) dataset.dark = classList.contains("body--dark");
    classList.toggle("body--dark", dark && dataset.dark === "true");
  });

function draw(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The colour at a value from 0 to 1 on a ramp of colours. */
function tint(ramp, value) {
  const place = Math.min(Math.max(value, 0), 1) * (ramp.length - 1), k = Math.min(Math.floor(place), ramp.length - 2);
  const mixed = [1, 3, 5].map((at) => {
    const [a, b] = [ramp[k], ramp[k + 1]].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(a + (place - k) * (b - a));
  });
  return `rgb(${mixed})`;
}

const short = (value) => String(Number(value.toPrecision(3))).replace("-", "\u2212");

class Plane {
  // go(x, y): to a point of the plane; take(k): to the item of a dot; key([dx, dy]): one step
  constructor(box, { go, take, key }) {
    Object.assign(this, { box, go, take, key, view: null, data: null, spot: null, held: null });
    this.svg = draw("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, class: "plane-drawing" });
    const id = `inside-${Math.random().toString(36).slice(2)}`;
    const clip = draw("clipPath", { id });
    clip.append(draw("rect", { x: LEFT, y: TOP, width: WIDE, height: TALL }));
    this.marks = draw("g", { "clip-path": `url(#${id})` });
    this.axes = draw("g", {});
    this.layer = draw("g", {});
    this.svg.append(clip, draw("rect", { x: LEFT, y: TOP, width: WIDE, height: TALL, class: "plane" }));
    this.svg.append(this.marks, this.axes, this.layer);
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    const zoom = document.createElement("div");
    zoom.className = "zoom";
    for (const [text, label, act] of [
      ["+", "Zoom in", () => this.zoom(1.5)],
      ["−", "Zoom out", () => this.zoom(1 / 1.5)],
      ["⤢", "Show the whole plane", () => this.zoom(0)],
    ]) {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: text, onclick: act });
      made.setAttribute("aria-label", label);
      zoom.append(made);
    }
    box.append(this.svg, zoom, this.tip);
    this.svg.setAttribute("tabindex", "0");
    this.svg.setAttribute("role", "application");
    this.svg.setAttribute("aria-label", "Map of the plane: arrow keys move the point");
    this.svg.addEventListener("keydown", (event) => {
      if (!ARROWS[event.key]) return;
      event.preventDefault();
      this.key(ARROWS[event.key]);
    });
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => (this.held ? this.drag(event) : this.hover(event)));
    this.svg.addEventListener("pointerup", (event) => this.lift(event));
    this.svg.addEventListener("pointercancel", () => (this.held = null));
    this.svg.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.svg.addEventListener("dblclick", (event) => this.pick(event));
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 400), this.pixels(event));
    }, { passive: false });
  }

  // data: points, tints, ramp, notes, ellipses [x, y, [a, b, c]] of covariances, frame, ends, labels, cross
  show(data) {
    const before = this.data;
    this.data = data;
    if (!before || String(before.frame) !== String(data.frame) || String(before.labels) !== String(data.labels))
      this.view = [...data.frame];
    this.redraw();
  }

  place(x, y) {
    const [left, right, low, high] = this.view;
    return [LEFT + ((x - left) / (right - left)) * WIDE, SIDE - BOTTOM - ((y - low) / (high - low)) * TALL];
  }

  point([across, down]) {
    const [left, right, low, high] = this.view;
    const inside = (value, a, b) => Math.min(Math.max(value, a), b);
    return [
      inside(left + ((across - LEFT) / WIDE) * (right - left), left, right),
      inside(low + ((SIDE - BOTTOM - down) / TALL) * (high - low), low, high),
    ];
  }

  pixels(event) {
    const frame = this.svg.getBoundingClientRect();
    return [((event.clientX - frame.x) / frame.width) * SIDE, ((event.clientY - frame.y) / frame.height) * SIDE];
  }

  redraw() {
    const { points, tints, ramp, ellipses, frame, ends, labels, cross } = this.data, [left, right, low, high] = this.view;
    const marks = [], axes = [], [x0, y0] = [LEFT, SIDE - BOTTOM];
    if (cross) {
      const [across, down] = this.place(0, 0);
      marks.push(draw("line", { x1: x0, y1: down, x2: x0 + WIDE, y2: down, class: "grid" }));
      marks.push(draw("line", { x1: across, y1: TOP, x2: across, y2: y0, class: "grid" }));
    }
    const sx = WIDE / (right - left), sy = TALL / (high - low);
    for (const [x, y, [a, b, c]] of ellipses) {
      // one standard deviation: eigenvalues and angle of [[a, b], [b, c]], in pixels
      const [p, q, r] = [a * sx * sx, -b * sx * sy, c * sy * sy];
      const middle = (p + r) / 2, half = Math.hypot((p - r) / 2, q), [cx, cy] = this.place(x, y);
      const angle = (Math.atan2(2 * q, p - r) / 2) * (180 / Math.PI);
      const radii = [middle + half, middle - half].map((value) => Math.sqrt(Math.max(value, 0)).toFixed(1));
      const turned = `rotate(${angle.toFixed(1)} ${cx.toFixed(1)} ${cy.toFixed(1)})`;
      marks.push(
        draw("ellipse", { cx: cx.toFixed(1), cy: cy.toFixed(1), rx: radii[0], ry: radii[1], transform: turned, class: "posterior" }),
      );
    }
    points.forEach(([x, y], k) => {
      if (x < left || x > right || y < low || y > high) return;
      const [cx, cy] = this.place(x, y);
      marks.push(draw("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 2.6, fill: tint(ramp, tints[k]) }));
    });
    this.marks.replaceChildren(...marks);
    const whole = String(this.view) === String(frame), shown = whole ? ends : this.view;
    for (const k of [0, 1]) {
      const anchor = ["start", "end"][k], at = this.place(shown[k], low)[0], up = this.place(left, shown[k + 2])[1];
      axes.push(draw("text", { x: at, y: SIDE - 20, "text-anchor": anchor }, short(shown[k])));
      axes.push(draw("text", { x: x0 - 5, y: up + 10 * k, "text-anchor": "end" }, short(shown[k + 2])));
    }
    const name = { "text-anchor": "middle", class: "axis-name" }, middle = TOP + TALL / 2;
    axes.push(draw("text", { x: x0 + WIDE / 2, y: SIDE - 8, ...name }, labels[0]));
    axes.push(draw("text", { x: 14, y: middle, transform: `rotate(-90 14 ${middle})`, ...name }, labels[1]));
    this.axes.replaceChildren(...axes);
    this.mark(this.spot, this.curve);
  }

  /** Where the current point is, and the curve that it follows. */
  mark(spot, curve) {
    this.spot = spot;
    this.curve = curve;
    const made = [];
    if (!this.view) return;
    if (curve && curve.length) {
      const line = curve.map(([x, y]) => this.place(x, y).map((v) => v.toFixed(1)).join(",")).join(" ");
      made.push(draw("polyline", { points: line, class: "trace", "clip-path": this.marks.getAttribute("clip-path") }));
    }
    if (spot) {
      const [across, down] = this.place(...this.point(this.place(...spot))).map((value) => value.toFixed(1));
      const marker = draw("g", { class: "marker" });
      marker.append(draw("circle", { cx: across, cy: down, r: 8 }));
      marker.append(draw("path", { d: `M${across - 13} ${down}h9m8 0h9M${across} ${down - 13}v9m0 8v9` }));
      made.push(marker);
    }
    this.layer.replaceChildren(...made);
  }

  zoom(factor, at = [LEFT + WIDE / 2, TOP + TALL / 2]) {
    const [left, right, low, high] = this.data.frame, wide = this.view[1] - this.view[0];
    const scale = Math.min(Math.max(((right - left) / wide) * factor, 1), CLOSEST), [x, y] = this.point(at);
    const across = (at[0] - LEFT) / WIDE, up = (SIDE - BOTTOM - at[1]) / TALL;
    this.look(x - (across * (right - left)) / scale, y - (up * (high - low)) / scale, scale);
  }

  /** Show the part of the frame from a corner on, but nothing outside the frame. */
  look(x, y, scale) {
    const [left, right, low, high] = this.data.frame, wide = (right - left) / scale, tall = (high - low) / scale;
    x = Math.min(Math.max(x, left), right - wide);
    y = Math.min(Math.max(y, low), high - tall);
    this.view = scale === 1 ? [...this.data.frame] : [x, x + wide, y, y + tall];
    this.redraw();
  }

  near(event) {
    const [x, y] = this.pixels(event);
    let best = -1, least = 8;
    this.data.points.forEach((point, k) => {
      const [across, down] = this.place(...point), away = Math.hypot(across - x, down - y);
      if (away < least) [best, least] = [k, away];
    });
    return best;
  }

  hover(event) {
    const k = this.data && event.pointerType !== "touch" ? this.near(event) : -1, note = this.data?.notes[k];
    this.tip.hidden = !note;
    if (!note) return;
    const frame = this.box.getBoundingClientRect();
    if (this.tip.dataset.k !== String(k)) this.tip.replaceChildren(...(this.picture?.(k) || []), note);
    this.tip.dataset.k = k;
    const [x, y] = [event.clientX - frame.x, event.clientY - frame.y];
    this.tip.style.left = `${Math.min(x + 14, frame.width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  press(event) {
    if (event.button !== 0 || !this.data) return;
    const at = this.pixels(event), whole = String(this.view) === String(this.data.frame);
    const spot = this.spot && this.place(...this.spot);
    const onSpot = spot && Math.hypot(spot[0] - at[0], spot[1] - at[1]) < NEAR;
    this.held = { at, view: [...this.view], moves: onSpot || whole, moved: false };
    this.tip.hidden = true;
    if (event.pointerType !== "touch" || onSpot) this.svg.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const at = this.pixels(event), { held } = this;
    if (Math.hypot(at[0] - held.at[0], at[1] - held.at[1]) > 3) held.moved = true;
    if (!held.moved) return;
    if (held.moves) return this.go(...this.point(at));
    const [left, right, low, high] = held.view, frame = this.data.frame;
    const x = left - ((at[0] - held.at[0]) / WIDE) * (right - left);
    const y = low + ((at[1] - held.at[1]) / TALL) * (high - low);
    this.look(x, y, (frame[1] - frame[0]) / (right - left));
  }

  lift(event) {
    if (this.held && !this.held.moved) this.go(...this.point(this.pixels(event)));
    this.held = null;
  }

  pick(event) {
    const k = this.near(event);
    if (k >= 0) this.take(k);
  }
}

const PAUSE_OF_DRAG = 12;

export default {
  template: `<div class="plane-box"></div>`,
  mounted() {
    let waiting = null, timer = null;
    const send = () => {
      timer = null;
      if (waiting) {
        this.$emit("go", waiting);
        waiting = null;
        timer = setTimeout(send, PAUSE_OF_DRAG);
      }
    };
    this.plane = new Plane(this.$el, {
      go: (x, y) => {
        waiting = [x, y];
        if (timer === null) send();
      },
      take: (k) => this.$emit("take", k),
      key: (step) => this.$emit("key", step),
    });
    this.$emit("ready");
  },
  methods: {
    show(data) {
      this.plane.show(data);
    },
    mark(spot, curve) {
      this.plane.mark(spot, curve);
    },
  },
};
