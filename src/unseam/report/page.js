// Values at the pointer, and a slider through the frames of traversals. The page is complete without.
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
})();
