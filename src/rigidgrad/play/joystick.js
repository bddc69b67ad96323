// Reads the first joystick or gamepad of a browser (Gamepad API) and writes its axes into the text
// field called "Joystick" of this page, as a hand would: "forward left turn", each from -1 to 1.
(() => {
  if (window.rigidgradJoystick) return;
  window.rigidgradJoystick = true;
  const REST = 0.12; // of an axis that nobody touches
  let told = null;

  const field = () => {
    for (const label of document.querySelectorAll("label"))
      if (label.textContent === "Joystick")
        for (let box = label.parentElement; box; box = box.parentElement) {
          const found = box.querySelector("input");
          if (found) return found;
        }
    return null;
  };

  const axis = (pad, k) => {
    const value = pad.axes[k] || 0;
    const size = Math.min(1, Math.max(0, (Math.abs(value) - REST) / (1 - REST)));
    return size ? (-Math.sign(value) * size).toFixed(2) : "0";
  };

  const read = () => {
    const pads = navigator.getGamepads ? [...navigator.getGamepads()] : [];
    const pad = pads.find((p) => p && p.connected && p.axes.length >= 2);
    if (!pad || document.hidden) return told === null ? null : "0 0 0"; // out of hand: stop
    return [axis(pad, 1), axis(pad, 0), axis(pad, 2)].join(" ");
  };

  const write = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
  setInterval(() => {
    const now = read();
    const input = now !== null && now !== told && field();
    if (!input) return;
    told = now;
    write.call(input, now);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, 50);
})();
