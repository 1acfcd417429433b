// Values at the pointer, a slider through the frames of traversals, figures as files. The page is complete without.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  document.body.append(tip);
  document.querySelectorAll("svg.chart title").forEach((title) => {
    title.parentNode.dataset.tip = title.textContent;
    title.remove(); // or the browser would show it a second time
  });
  let lit = null;
  const show = (event) => {
    const mark = event.target.closest?.("[data-tip]") ?? null;
    if (lit && lit !== mark) lit.classList.remove("lit");
    lit = mark;
    tip.textContent = mark ? mark.dataset.tip : "";
    if (!mark) return;
    if (mark.tagName !== "text") mark.classList.add("lit");
    const wide = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, wide - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY > 60 ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("click", async (event) => {
    const command = event.target.closest?.("[data-copy]")?.dataset.copy;
    if (!command) return;
    await navigator.clipboard.writeText(command);
    tip.textContent = `Copied: ${command}`;
  });
  document.addEventListener("scroll", () => { tip.textContent = ""; }, { passive: true });

  // what scrolls can be reached by keyboard
  const reach = () => document.querySelectorAll(".panel").forEach((panel) => {
    if (panel.scrollWidth > panel.clientWidth + 1) panel.tabIndex = 0;
    else panel.removeAttribute("tabindex");
  });
  window.addEventListener("resize", reach);
  reach();

  document.querySelectorAll(".walk:not(.still)").forEach((walk) => {
    const strips = [...walk.querySelectorAll("img.strip")];
    if (!strips.length) return;
    const frames = Number(strips[0].dataset.frames);
    const screens = strips.map((strip) => {
      const screen = document.createElement("div");
      screen.className = "screen";
      screen.setAttribute("aria-hidden", "true");
      screen.style.backgroundImage = `url(${strip.src})`;
      strip.before(screen);
      return screen;
    });
    const player = document.createElement("label");
    player.className = "player";
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: frames - 1, step: 1 });
    const said = document.createElement("output");
    player.append("Move every latent", slider, said);
    walk.before(player);
    const draw = () => {
      const at = Number(slider.value);
      const value = (4 * at) / (frames - 1) - 2;
      said.textContent = `${value > 0 ? "+" : ""}${value.toFixed(1).replace("-", "−")} σ`;
      slider.setAttribute("aria-valuetext", said.textContent);
      strips.forEach((strip, row) => {
        const wide = (Number(strip.getAttribute("width")) + Number(strip.dataset.gap)) / frames;
        const one = wide - Number(strip.dataset.gap);
        const scale = screens[row].clientWidth / one;
        screens[row].style.backgroundSize = `${strip.getAttribute("width") * scale}px auto`;
        screens[row].style.backgroundPosition = `${-at * wide * scale}px 0`;
        screens[row].style.height = `${strip.getAttribute("height") * scale}px`;
      });
    };
    slider.value = (frames - 1) / 2;
    slider.addEventListener("input", draw);
    window.addEventListener("resize", draw);
    draw();
    strips.forEach((strip) => strip.addEventListener("pointermove", (event) => {
      const box = strip.getBoundingClientRect();
      slider.value = Math.min(frames - 1, Math.floor(((event.clientX - box.left) / box.width) * frames));
      draw();
    }));
  });

  // Figures as files: all that a panel shows, drawn again as plain SVG on white, with its fonts inside.
  const tags = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  const safe = (text) => text.replace(/[&<>"]/g, (letter) => tags[letter]);
  const inks = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-weight"];
  const plain = (svg, box) => {
    const copy = svg.cloneNode(true);
    const pairs = [...copy.querySelectorAll("*")].map((one, k) => [one, svg.querySelectorAll("*")[k]]);
    if (svg.classList.contains("chart")) {
      pairs.forEach(([one, from]) => {
        const style = getComputedStyle(from);
        inks.forEach((key) => one.setAttribute(key, style.getPropertyValue(key)));
        if (one.getAttribute("dominant-baseline")) one.setAttribute("dy", ".35em");
        ["class", "data-tip", "dominant-baseline"].forEach((key) => one.removeAttribute(key));
      });
    }
    ["class", "style", "role", "tabindex"].forEach((key) => copy.removeAttribute(key));
    Object.entries(box).forEach(([key, value]) => copy.setAttribute(key, value));
    return new XMLSerializer().serializeToString(copy);
  };
  const lines = (node) => { // of a text, as the browser broke it
    const found = [];
    for (const word of node.textContent.matchAll(/\S+\s*/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].trimEnd().length);
      const box = range.getBoundingClientRect();
      const last = found.at(-1);
      if (last && Math.abs(last.box.top - box.top) < 2) last.text += ` ${word[0].trim()}`;
      else if (box.width) found.push({ box, text: word[0].trim() });
    }
    return found;
  };
  const draw = (panel, title) => {
    const open = [...panel.querySelectorAll(".save, .player, .screen")];
    open.forEach((one) => { one.style.display = "none"; });
    panel.classList.add("paper");
    const from = panel.getBoundingClientRect();
    const parts = [];
    const place = (box) => ({ x: box.left - from.left + panel.scrollLeft + 12, y: box.top - from.top + 40, width: box.width, height: box.height });
    const visit = (node) => {
      if (node.nodeType === Node.TEXT_NODE) {
        const style = getComputedStyle(node.parentNode);
        lines(node).forEach(({ box, text }) => {
          const at = place(box);
          parts.push([at, `<text x="${at.x}" y="${at.y + at.height / 2}" dy=".35em" font-size="${style.fontSize}" font-weight="${style.fontWeight}" fill="${style.color}">${safe(text)}</text>`]);
        });
      } else if (node.tagName === "svg") {
        const at = place(node.getBoundingClientRect());
        parts.push([at, plain(node, at)]);
      } else if (node.tagName === "IMG") {
        const at = place(node.getBoundingClientRect());
        parts.push([at, `<image x="${at.x}" y="${at.y}" width="${at.width}" height="${at.height}" preserveAspectRatio="none" style="image-rendering: pixelated" href="${node.src}"/>`]);
      } else if (node.tagName === "I") {
        const at = place(node.getBoundingClientRect());
        parts.push([at, `<circle cx="${at.x + at.width / 2}" cy="${at.y + at.height / 2}" r="${at.width / 2}" fill="${getComputedStyle(node).backgroundColor}"/>`]);
      } else if (node.nodeType === Node.ELEMENT_NODE && node.style?.display !== "none") node.childNodes.forEach(visit);
    };
    visit(panel);
    panel.classList.remove("paper");
    open.forEach((one) => { one.style.display = ""; });
    const wide = Math.ceil(Math.max(...parts.map(([at]) => at.x + at.width), 8.4 * title.length) + 12);
    const tall = Math.ceil(Math.max(...parts.map(([at]) => at.y + at.height)) + 12);
    const head = `<text x="12" y="24" font-size="14px" font-weight="bold" fill="#1b1f24">${safe(title)}</text>`;
    const sheet = `<style>${document.getElementById("font").textContent}</style>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 ${wide} ${tall}" width="${wide}" height="${tall}" font-family="unseam, DejaVu Sans, sans-serif" font-size="12px"><title>${safe(title)}</title>${sheet}<rect width="100%" height="100%" fill="#fff"/>${head}${parts.map(([, part]) => part).join("")}</svg>`;
  };
  const store = (blob, name) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  const rasterise = async (svg) => {
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await picture.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 3 * picture.width, height: 3 * picture.height });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  };
  document.querySelectorAll(".panel, figure.card").forEach((panel) => {
    if (panel.matches(":has(> .legend:only-child)")) return; // no figure
    const model = panel.closest(".group")?.querySelector(".model")?.textContent;
    const heading = panel.closest("section").querySelector("h2").textContent;
    const caption = panel.querySelector(".caption")?.textContent ?? "";
    const title = model ? `${heading} · ${model}` : heading;
    const name = `${title} ${caption}`.toLowerCase().replace(/[^\p{L}\d]+/gu, "-").slice(0, 60).replace(/-$/, "");
    const save = document.createElement("div");
    save.className = "save";
    ["SVG", "PNG"].forEach((kind) => {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: kind });
      button.setAttribute("aria-label", `Save as ${kind}: ${title}${caption ? `, ${caption}` : ""}`);
      button.addEventListener("click", async () => {
        const svg = draw(panel, title);
        store(kind === "SVG" ? new Blob([svg], { type: "image/svg+xml" }) : await rasterise(svg), `${name}.${kind.toLowerCase()}`);
      });
      save.append(button);
    });
    panel.append(save);
  });
})();
