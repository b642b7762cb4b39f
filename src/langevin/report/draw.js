// Draws every chart of the report; what came of it stands in the page, for readers and for tests.
const specs = JSON.parse(document.getElementById("charts").textContent);
const options = { actions: false, renderer: "svg", config: { background: "transparent", view: { stroke: null } } };
let drawn = 0;
for (const [id, spec] of Object.entries(specs)) {
  const place = document.getElementById(id);
  try {
    await window.vegaEmbed(place, spec, options);
    drawn += 1;
  } catch (error) {
    place.textContent = `This picture could not be drawn: ${error.message}`;
    console.error(error);
  }
}
document.documentElement.dataset.drawn = String(drawn);
