"""The page of reproduced artefacts, written from the committed results when the documentation is built."""

import re

from unseam.drawing import to_svg
from unseam.papers import artefacts, committed, results_folder

FIGURE = re.compile(r"<!-- figure (\S+) -->")
MARKS = {"reproduced": "✓", "partly": "◐", "not reproduced": "✗", "cannot be run here": "–"}


def write_page(app, page, source):
    """Fill marked places: figures on any page; the table of verdicts and a section for each artefact on its own."""
    source[0] = FIGURE.sub(lambda found: figure(artefacts()[found[1]]), source[0])
    if page != "reproductions":
        return
    kept = [(artefact, committed(artefact, results_folder())) for artefact in artefacts().values()]
    source[0] = source[0].replace("<!-- verdicts -->", verdicts(kept))
    source[0] = source[0].replace("<!-- artefacts -->", "\n".join(section(*one) for one in kept))


def figure(artefact):
    """The figure of an artefact's committed result, as raw HTML, or that there is none."""
    result = committed(artefact, results_folder())
    if result is None:
        return "*Not measured yet.*"
    return f'```{{raw}} html\n<div class="artefact">{to_svg(artefact.draw(result.outcome.tables))}</div>\n```'


def verdicts(kept):
    lines = [
        "| artefact | shows | verdict | findings | scale | time | on |",
        "|---|---|---|---|---|---|---|",
    ]
    for artefact, result in kept:
        title = f"[{artefact.key}](#{anchor(artefact)})"
        if result is None:
            lines.append(f"| {title} | {artefact.title} | not measured yet | | | | |")
            continue
        mark = f"{MARKS[result.verdict]} {result.verdict}"
        seconds, on = result.spent
        lines.append(
            f"| {title} | {artefact.title} | {mark} | {result.tally} | {result.scale} | {seconds:.0f} s | {on} |"
        )
    return "\n".join(lines)


def section(artefact, result):
    text = [f"({anchor(artefact)})=", f"## {artefact.key}", "", f"**{artefact.title}.** {artefact.claim}", ""]
    text += [f"*Counts as reproduced if:* {artefact.criterion}", ""]
    if result is None:
        return "\n".join([*text, "Not measured yet.", ""])
    text += ["| quantity | published | measured | verdict | |", "|---|---|---|---|---|"]
    text += [
        f"| {cell(found.quantity)} | {cell(found.published)} | {number(found)} | {MARKS[found.verdict]} "
        f"{found.verdict} | {cell(found.note)} |"
        for found in result.outcome.findings
    ]
    versions, spent = result.about["versions"], result.spent
    text += [
        "",
        "```{raw} html",
        f'<div class="artefact">{to_svg(artefact.draw(result.outcome.tables))}</div>',
        "```",
        "",
    ]
    if result.outcome.note:
        text += [result.outcome.note, ""]
    text += [
        f"`{result.command}` · {spent.seconds:.0f} s on {spent.on}, torch {versions['torch']}, "
        f"{result.about['created'][:10]}, revision `{result.about['revision']}`.",
        "",
    ]
    return "\n".join(text)


def anchor(artefact):
    return artefact.key.replace(".", "-").replace("_", "-")


def number(found):
    if found.measured is None:
        return ""
    interval = (
        "" if found.lower is None or found.upper is None else f" [{found.lower:.3g}, {found.upper:.3g}]"
    )
    return f"{found.measured:.4g}{interval}"


def cell(text):
    return text.replace("|", "\\|")


def setup(app):
    app.connect("source-read", write_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
