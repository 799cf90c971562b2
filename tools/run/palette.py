"""The colors and fonts of all pages and pictures, light and dark, for CSS.

Pictures are drawn in the light colors. `themed` replaces them with CSS variables that
the picture defines for both themes, so it follows the reader's theme, even on GitHub.
"""

import re

PALETTE = {  # name -> (light, dark)
    "page": ("#ffffff", "#0f1419"),  # also text on a filled shape
    "panel": ("#f6f8fa", "#161d26"),
    "line": ("#d8dee4", "#2d3743"),
    "ink": ("#1b1f24", "#e6e9ed"),
    "soft": ("#57606a", "#9da8b5"),
    "old": ("#fff4e8", "#2c1f12"),  # removed lines of code
    "new": ("#edf4ff", "#10243f"),  # added lines of code
    "right": ("#0550ae", "#8cc2ff"),
    "ghost": ("#6697d8", "#3b72b5"),
    "bad": ("#b3261e", "#ff9187"),
    "good": ("#1a6f33", "#7ee2a0"),
    "rank0": ("#6f42c1", "#c3a6ff"),
    "rank1": ("#0b756f", "#5fd3ca"),
    "rank2": ("#9a6700", "#e3b341"),
    "rank3": ("#b0276a", "#ff9ecb"),
    "message": ("#c2410c", "#fb9a5c"),  # messages between ranks
}
LIGHT = {name: light for name, (light, _) in PALETTE.items()}
SANS = "-apple-system, 'Segoe UI', Roboto, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
LINES = [LIGHT[name] for name in ("right", "message", "good", "rank3", "rank2", "soft")]
STYLE = {  # for matplotlib's rcParams; opaque, so readable on a dark page
    "figure.facecolor": LIGHT["page"],
    "savefig.facecolor": LIGHT["page"],
    "axes.facecolor": LIGHT["page"],
    "axes.edgecolor": LIGHT["soft"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.prop_cycle": f"cycler('color', {LINES})",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlecolor": LIGHT["ink"],
    "axes.titlelocation": "left",
    "grid.color": LIGHT["line"],
    "legend.borderaxespad": 0,
    "legend.edgecolor": "none",
    "legend.framealpha": 1,  # hides the grid
    "patch.edgecolor": LIGHT["ink"],
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["soft"],
    "xtick.major.size": 0,
    "ytick.color": LIGHT["soft"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "ytick.major.size": 0,
    "figure.dpi": 110,
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "six scripts",
}


def variables(theme):
    """Return the CSS of one theme, "light" or "dark": `--page: #ffffff; …`."""
    place = ("light", "dark").index(theme)
    return " ".join(f"--{name}: {pair[place]};" for name, pair in PALETTE.items())


def switchable():
    """Return CSS variables whose colors follow each element's color-scheme."""
    pairs = PALETTE.items()
    found = [f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in pairs]
    return f":root {{ --sans: {SANS}; --mono: {MONO}; {' '.join(found)} }}"


def stylesheet():
    """Return CSS variables whose colors follow the reader's theme."""
    fonts = f"--sans: {SANS}; --mono: {MONO};"
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {variables('dark')} }} }}"
    return f":root {{ {fonts} {variables('light')} }}\n{dark}\n"


def themed(svg):
    """Return an SVG in the light colors, changed to follow the reader's theme."""
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", svg)
    for name, light in LIGHT.items():
        svg = svg.replace(light, f"var(--{name})")
    head, tag, rest = svg.partition('<style type="text/css">')
    return f"{head}{tag}\n{stylesheet()}{rest}"


def restyled(svg):
    """Return a picture with this palette's stylesheet instead of an older one.

    Stylesheets start at :root and end with the @media rule's line.
    """
    return re.sub(r":root \{ .*\n@media .*\n", stylesheet(), svg, count=1)
