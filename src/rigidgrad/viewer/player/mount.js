// Every <div class="rigidgrad-view"> that holds its data as JSON and is not mounted yet becomes a player.

for (const host of document.querySelectorAll("div.rigidgrad-view:not([data-mounted])")) {
  host.dataset.mounted = "";
  const data = JSON.parse(host.querySelector("script[type='application/json']").textContent);
  const meshes = new Map(); // they stand once on a page, before the first figure that needs them
  for (const shape of data.shapes.filter((s) => s.mesh)) {
    if (!meshes.has(shape.mesh)) meshes.set(shape.mesh, JSON.parse(document.querySelector(`script[data-rigidgrad-mesh="${shape.mesh}"]`).textContent));
    shape.surface = meshes.get(shape.mesh);
  }
  try {
    host.player = new Player(host, data);
  } catch (error) {
    if (host.shadowRoot) host.shadowRoot.replaceChildren();
    const said = element("p", {}, `${data.name} cannot be shown: ${error.message}.`);
    (host.shadowRoot || host).append(said);
  }
}
