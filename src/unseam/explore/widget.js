// Sliders, picture and geometry of one model in a notebook; Python computes, this draws.
function element(kind, parent, text) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function render({ model, el }) {
  el.classList.add("unseam");
  element("p", el, model.get("title")).className = "title";
  const body = element("div", el);
  body.className = "body";
  const sliders = element("div", body);
  const picture = element("img", body);
  picture.className = "picture";
  picture.alt = "mean of p(x|z) at the sliders' position";
  const geometry = element("div", body);

  model.get("names").forEach((name, place) => {
    const latent = model.get("shown")[place];
    const row = element("label", sliders);
    element("span", row, name);
    const input = element("input", row);
    Object.assign(input, { type: "range", min: -model.get("limit"), max: model.get("limit"), step: 0.05 });
    const shown = element("output", row);
    const effect = element("img", row);
    effect.alt = `column of the Jacobian for ${name}`;
    input.addEventListener("input", () => {
      const z = model.get("z").slice();
      z[latent] = Number(input.value);
      model.set("z", z);
      model.save_changes();
    });
    const follow = () => {
      input.value = model.get("z")[latent];
      shown.textContent = Number(input.value).toFixed(2);
      effect.src = model.get("columns")[place];
    };
    model.on("change:z", follow);
    model.on("change:columns", follow);
    follow();
  });
  const reset = element("button", sliders, "to the origin");
  reset.addEventListener("click", () => {
    model.set("z", model.get("z").map(() => 0));
    model.save_changes();
  });
  const draw = () => {
    picture.src = model.get("picture");
    geometry.innerHTML = model.get("geometry");
  };
  model.on("change:picture", draw);
  model.on("change:geometry", draw);
  draw();
}

export default { render };
