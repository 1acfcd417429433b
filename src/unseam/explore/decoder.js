// Decoders in the browser: layers, their exact directional derivatives (forward mode), and the local geometry of them.
// Rows are Float32Arrays: the first holds values, the others tangents. Pictures are channels-last between layers.
"use strict";

const smooth = (f, slope) => ({ f, slope });
const logistic = (x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
// Φ(x): the series of erf near zero, the continued fraction of erfc beyond.
function normalCdf(x) {
  const t = x * Math.SQRT1_2;
  if (Math.abs(t) < 2.5) {
    let term = t, sum = t;
    for (let k = 1; k < 60; k++) {
      term *= (-t * t) / k;
      sum += term / (2 * k + 1);
    }
    return 0.5 + sum / Math.sqrt(Math.PI);
  }
  const a = Math.abs(t);
  let tail = 0;
  for (let k = 40; k > 0; k--) tail = k / 2 / (a + tail);
  const upper = Math.exp(-a * a) / (Math.sqrt(Math.PI) * (a + tail)) / 2;
  return t > 0 ? 1 - upper : upper;
}
const ACTIVATIONS = {
  leaky_relu: ({ slope }) => smooth((x) => (x > 0 ? x : slope * x), (x) => (x > 0 ? 1 : slope)),
  tanh: () => smooth(Math.tanh, (x) => 1 - Math.tanh(x) ** 2),
  sigmoid: () => smooth(logistic, (x) => logistic(x) * logistic(-x)),
  softplus: () => smooth((x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))), logistic),
  elu: ({ alpha }) => smooth((x) => (x > 0 ? x : alpha * Math.expm1(x)), (x) => (x > 0 ? 1 : alpha * Math.exp(x))),
  gelu: () =>
    smooth(
      (x) => x * normalCdf(x),
      (x) => normalCdf(x) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
    ),
  silu: () => smooth((x) => x * logistic(x), (x) => logistic(x) * (1 + x * logistic(-x))),
};

// Each layer maps one row; a shift (bias) enters values only.
const LAYERS = {
  linear({ inputs, outputs }, [weight, bias], x, isValue) {
    const y = new Float32Array(outputs);
    for (let o = 0, w = 0; o < outputs; o++, w += inputs) {
      let sum = isValue && bias ? bias[o] : 0;
      for (let i = 0; i < inputs; i++) sum += weight[w + i] * x[i];
      y[o] = sum;
    }
    return y;
  },
  // weights (input channel, kernel row, kernel column, output channel): one row of a kernel is added at once
  deconvolution({ input, output, kernel, stride, padding }, [weight, bias], x, isValue) {
    const [height, width, channels] = input, [tall, wide, depth] = output, [kh, kw] = kernel;
    const y = blank(tall * wide, depth, isValue && bias);
    const values = new Float64Array(channels), starts = new Int32Array(channels);
    for (let r = 0, p = 0; r < height; r++) {
      const top = r * stride[0] - padding[0];
      const first = Math.max(0, -top), last = Math.min(kh, tall - top);
      for (let col = 0; col < width; col++) {
        const side = col * stride[1] - padding[1];
        const from = Math.max(0, -side), count = (Math.min(kw, wide - side) - from) * depth;
        // what is zero (half of what a ReLU lets through) adds nothing; four channels at a time save memory traffic
        let found = 0;
        for (let i = 0; i < channels; i++, p++)
          if (x[p] !== 0) {
            values[found] = x[p];
            starts[found++] = i * kh;
          }
        const quads = found & ~3;
        for (let k = first; k < last; k++) {
          const at = ((top + k) * wide + side + from) * depth;
          const place = (j) => ((starts[j] + k) * kw + from) * depth;
          for (let j = 0; j < quads; j += 4) {
            const a = place(j), b = place(j + 1), c = place(j + 2), d = place(j + 3);
            const u = values[j], v = values[j + 1], s = values[j + 2], t = values[j + 3];
            for (let n = 0; n < count; n++)
              y[at + n] += u * weight[a + n] + v * weight[b + n] + s * weight[c + n] + t * weight[d + n];
          }
          for (let j = quads; j < found; j++) {
            const a = place(j), u = values[j];
            for (let n = 0; n < count; n++) y[at + n] += u * weight[a + n];
          }
        }
      }
    }
    return y;
  },
  convolution({ input, output, kernel, stride, padding }, [weight, bias], x, isValue) {
    const [height, width, channels] = input, [tall, wide, depth] = output, [kh, kw] = kernel;
    const y = blank(tall * wide, depth, isValue && bias);
    for (let r = 0, at = 0; r < tall; r++)
      for (let c = 0; c < wide; c++, at += depth)
        for (let k = 0; k < kh; k++)
          for (let l = 0; l < kw; l++) {
            const row = r * stride[0] - padding[0] + k, column = c * stride[1] - padding[1] + l;
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            for (let i = 0; i < channels; i++) {
              const value = x[(row * width + column) * channels + i];
              const start = ((i * kh + k) * kw + l) * depth;
              if (value !== 0) for (let n = 0; n < depth; n++) y[at + n] += value * weight[start + n];
            }
          }
    return y;
  },
  affine({ channels }, [scale, shift], x, isValue) {
    return x.map((value, k) => value * scale[k % channels] + (isValue ? shift[k % channels] : 0));
  },
  pictures: ({ shape }, _, x) => transpose(x, shape[0], shape[1] * shape[2]),
  vector: ({ shape }, _, x) => transpose(x, shape[1] * shape[2], shape[0]),
};

function blank(places, depth, bias) {
  const y = new Float32Array(places * depth);
  if (bias) for (let k = 0; k < y.length; k += depth) y.set(bias, k);
  return y;
}

function transpose(x, rows, columns) {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
  return y;
}

/** Output of a decoder at z and its derivatives along tangents: [output, ...derivatives]. */
function decode(layers, weights, z, tangents = []) {
  let rows = [Float32Array.from(z), ...tangents.map((one) => Float32Array.from(one))];
  for (const layer of layers) {
    if (layer.op in LAYERS) {
      const own = (layer.weights || []).map((at) => at && weights.subarray(at[0], at[0] + at[1]));
      rows = rows.map((row, k) => LAYERS[layer.op](layer, own, row, k === 0));
    } else {
      const { f, slope } = ACTIVATIONS[layer.op](layer), values = rows[0];
      const slopes = rows.length > 1 && values.map(slope);
      rows = rows.map((row, k) => (k === 0 ? row.map(f) : row.map((t, n) => t * slopes[n])));
    }
  }
  return rows;
}

// What outputs mean: E[x|z], its slope, and the Fisher weight, per output.
const LIKELIHOODS = {
  identity: ({ weight }) => ({ mean: (o) => o, slope: () => 1, weight: () => weight }),
  logistic: ({ weight }) => {
    const variance = (o) => logistic(o) * logistic(-o);
    return { mean: logistic, slope: variance, weight: (o) => weight * variance(o) };
  },
  continuous_bernoulli() {
    // near zero both have 0/0: their series to the sixth order
    const near = (o) => Math.abs(o) < 0.3;
    const mean = (o) =>
      near(o) ? 0.5 + o / 12 - o ** 3 / 720 + o ** 5 / 30240 - o ** 7 / 1209600 : -1 / Math.expm1(-o) - 1 / o;
    const slope = (o) => {
      const decay = Math.exp(-Math.abs(o));
      return near(o)
        ? 1 / 12 - o ** 2 / 240 + o ** 4 / 6048 - o ** 6 / 172800
        : 1 / o ** 2 - decay / (1 - decay) ** 2;
    };
    return { mean, slope, weight: slope };
  },
};

/** E[x|z] at z. */
function picture(model, weights, z) {
  return decode(model.layers, weights, z)[0].map(LIKELIHOODS[model.likelihood.kind](model.likelihood).mean);
}

/** Rows of the rotation by so many degrees in the plane of two axes: z′ = U z. */
function rotation(size, [first, second, degrees]) {
  const rows = Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => +(i === j)));
  if (size < 2 || first === second) return rows;
  const angle = (degrees * Math.PI) / 180;
  rows[first][first] = rows[second][second] = Math.cos(angle);
  rows[first][second] = -Math.sin(angle);
  rows[second][first] = Math.sin(angle);
  return rows;
}

/** The geometry at z over some latents of rotated axes; undefined numbers are null. */
function geometry(model, weights, z, latents, plane) {
  const axes = rotation(z.length, plane);
  const [output, ...rows] = decode(model.layers, weights, z, latents.map((k) => axes[k]));
  const { slope, weight } = LIKELIHOODS[model.likelihood.kind](model.likelihood);
  const weighs = output.map(weight), slopes = output.map(slope);
  const gram = rows.map(() => new Array(rows.length));
  rows.forEach((a, i) => {
    const weighted = a.map((value, n) => weighs[n] * value);
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let n = 0; n < a.length; n++) sum += weighted[n] * rows[j][n];
      gram[i][j] = gram[j][i] = sum;
    }
  });
  const columns = rows.map((row) => row.map((value, n) => value * slopes[n]));
  const found = measure(gram);
  const directions = found.singularValues.map((_, k) => {
    const sum = new Float32Array(output.length);
    columns.forEach((column, j) => {
      const part = found.rightVectors[j][k];
      for (let n = 0; n < sum.length; n++) sum[n] += part * column[n];
    });
    return sum;
  });
  return { latents, columns, directions, ...found };
}

/** Everything that a pullback J'WJ tells: lengths, cosines, singular values and vectors, DtO, Hadamard gap. */
function measure(gram) {
  const size = gram.length, norms = gram.map((row, k) => Math.sqrt(Math.max(row[k], 0)));
  const longest = Math.max(...norms), present = norms.map((norm) => norm > 2.2e-16 * longest);
  const cosines = gram.map((row, i) =>
    row.map((value, j) => (present[i] && present[j] ? Math.min(Math.abs(value) / (norms[i] * norms[j]), 1) : null)),
  );
  const kept = present.flatMap((one, k) => (one ? [k] : []));
  const { values, vectors } = eigen(gram);
  const singularValues = values.map((value) => Math.sqrt(Math.max(value, 0)));
  const found = { norms, cosines, singularValues, rightVectors: vectors, dto: null, cosine: null, gap: null };
  // zeros are alike, whatever rounding makes of them
  const exact = singularValues.map((s) => (s > 1e-7 * singularValues[0] ? s : 0));
  found.degenerate = exact.some((s, k) => k && (exact[k - 1] - s < 0.05 * exact[k - 1] || !exact[k - 1]));
  if (kept.length < 2) return found;
  let total = 0;
  for (const i of kept) for (const j of kept) if (i !== j) total += cosines[i][j];
  found.cosine = total / (kept.length * (kept.length - 1));
  if (!found.degenerate) found.dto = distance(vectors);
  // by elimination of the unit columns' Gram matrix; a dependent column counts as size · ε
  let rest = kept.map((i) => kept.map((j) => (i === j ? 1 : gram[i][j] / (norms[i] * norms[j]))));
  found.gap = 0;
  while (rest.length) {
    const floor = size * 2.2e-16, dependent = rest[0][0] <= floor, pivot = dependent ? floor : rest[0][0];
    found.gap -= Math.log(pivot) / 2;
    const [head, ...others] = rest;
    rest = others.map((row) => row.slice(1).map((v, j) => v - (dependent ? 0 : (row[0] * head[j + 1]) / pivot)));
  }
  found.gap = Math.max(found.gap, 0);
  return found;
}

/** Eigenvalues, descending, and eigenvectors in columns, the largest entry of each positive; by Jacobi rotations. */
function eigen(matrix) {
  const size = matrix.length, a = matrix.map((row) => Float64Array.from(row));
  const v = a.map((_, i) => Float64Array.from(a, (_, j) => +(i === j)));
  for (let sweep = 0; sweep < 60; sweep++) {
    let moved = false;
    for (let p = 0; p < size; p++)
      for (let q = p + 1; q < size; q++) {
        if (Math.abs(a[p][q]) <= 1e-14 * Math.sqrt(Math.abs(a[p][p] * a[q][q])) || a[p][q] === 0) continue;
        moved = true;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const t = (theta >= 0 ? 1 : -1) / (Math.abs(theta) + Math.hypot(theta, 1));
        const c = 1 / Math.hypot(t, 1), s = t * c;
        for (let k = 0; k < size; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
        for (let k = 0; k < size; k++) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
        for (let k = 0; k < size; k++) [v[k][p], v[k][q]] = [c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]];
      }
    if (!moved) break;
  }
  const order = a.map((_, k) => k).sort((i, j) => a[j][j] - a[i][i]);
  const signs = order.map((k) => {
    const largest = v.reduce((best, row) => (Math.abs(row[k]) > Math.abs(best) + 1e-8 ? row[k] : best), 0);
    return largest < 0 ? -1 : 1;
  });
  return { values: order.map((k) => a[k][k]), vectors: v.map((row) => order.map((k, n) => signs[n] * row[k])) };
}

/** Frobenius distance of an orthogonal matrix from the nearest signed permutation. */
function distance(vectors) {
  const best = assignment(vectors.map((row) => row.map((value) => -Math.abs(value))));
  const total = vectors.reduce((sum, row, i) => sum + Math.abs(row[best[i]]), 0);
  return Math.sqrt(Math.max(0, 2 * vectors.length - 2 * total));
}

/** The column of each row that make the sum of a square matrix smallest, by the Hungarian method. */
function assignment(cost) {
  const size = cost.length, u = new Float64Array(size + 1), v = new Float64Array(size + 1);
  const owner = new Int32Array(size + 1), way = new Int32Array(size + 1);
  for (let i = 1; i <= size; i++) {
    const least = new Float64Array(size + 1).fill(Infinity), used = new Uint8Array(size + 1);
    let column = 0;
    owner[0] = i;
    do {
      used[column] = 1;
      let delta = Infinity, next = 0;
      for (let j = 1; j <= size; j++) {
        if (used[j]) continue;
        const reduced = cost[owner[column] - 1][j - 1] - u[owner[column]] - v[j];
        if (reduced < least[j]) [least[j], way[j]] = [reduced, column];
        if (least[j] < delta) [delta, next] = [least[j], j];
      }
      for (let j = 0; j <= size; j++) {
        if (used[j]) [u[owner[j]], v[j]] = [u[owner[j]] + delta, v[j] - delta];
        else least[j] -= delta;
      }
      column = next;
    } while (owner[column]);
    for (; column; column = way[column]) owner[column] = owner[way[column]];
  }
  const found = new Array(size);
  for (let j = 1; j <= size; j++) found[owner[j] - 1] = j - 1;
  return found;
}

/** Numbers of a text in base64: float16 or float32, little-endian, as float32. */
function unpack(text, half) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  if (!half) return new Float32Array(bytes.buffer);
  return Float32Array.from(new Uint16Array(bytes.buffer), (bits) => {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent ? 2 ** (exponent - 25) * (1024 + fraction) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  });
}

// In a worker: models by number, then points; the answer carries what was asked.
if (typeof WorkerGlobalScope !== "undefined" && self instanceof WorkerGlobalScope) {
  const models = {};
  self.onmessage = ({ data }) => {
    if (data.model) models[data.member] = data;
    else {
      const { model, weights } = models[data.member];
      self.postMessage({ ...data, found: geometry(model, weights, data.z, data.latents, data.plane) });
    }
  };
}
