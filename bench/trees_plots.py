"""Pictures of `trees.py`'s figures, by matplotlib."""

from __future__ import annotations

from pathlib import Path


def draw(result: dict, folder: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "rigidgrad"
    folder.mkdir(parents=True, exist_ok=True)
    rows = result.get("figures_13_14", [])
    if rows:
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
        for branching in sorted({r["branching"] for r in rows}):
            mine = [r for r in rows if r["branching"] == branching]
            left.plot([r["bodies"] for r in mine], [r["ns_per_body"][r["default"]] for r in mine], "o-", label=f"branching {branching:g}")
        chain = [r for r in rows if r["branching"] == 2.0]
        left.plot([r["bodies"] for r in chain], [r["ns_per_body"]["sequential"] for r in chain], "k--", label="plain loop, branching 2")
        left.set(xscale="log", yscale="log", xlabel="bodies", ylabel="ns a body", title="Inverse dynamics, one core, float64")
        for method, style in (("levels", "o-"), ("heavy_path", "s-"), ("euler_tour", "^-")):
            some = [r for r in chain if method in r["error"]]
            right.plot([r["bodies"] for r in some], [r["error"][method] for r in some], style, label=method)
        right.set(xscale="log", yscale="log", xlabel="bodies", ylabel="largest relative error", title="Against long double, branching 2")
        for axes in (left, right):
            axes.legend(fontsize=8)
            axes.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(folder / "trees_rnea.svg", metadata={"Date": None})
    rows = [r for r in result.get("figures_15_16", []) if "seconds" in r]
    if rows:
        figure, axes = plt.subplots(figsize=(5, 3.8))
        for branching in sorted({r["branching"] for r in rows}):
            mine = [r for r in rows if r["branching"] == branching]
            axes.plot([r["bodies"] for r in mine], [1e3 * r["seconds"]["crba"] for r in mine], "o-", label=f"branching {branching:g}")
        axes.set(xscale="log", yscale="log", xlabel="bodies", ylabel="ms", title="Mass matrix, packed, one core")
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
        figure.tight_layout()
        figure.savefig(folder / "trees_crba.svg", metadata={"Date": None})
