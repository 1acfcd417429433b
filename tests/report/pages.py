"""Reading a page as a browser and a screen reader would."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "input", "link", "hr"}
SVG_LEAVES = {"rect", "line", "circle", "polyline", "path", "use", "stop"}


class Page(HTMLParser):
    """Headings, links, labels and words of a page; raises where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.unlabelled, self.addresses = [], [], [], []
        self.ids, self.tags, self.said, self.cells = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if "id" in given else []
        self.addresses += [given[key] for key in ("src", "href", "xlink:href", "action") if key in given]
        named = given.get("aria-label") or given.get("alt")
        inside = any(tag == "figure" and role == "img" for tag, role in self.open)
        if tag in ("img", "svg") and not named and not inside:
            self.unlabelled.append(tag)
        if tag == "th":
            self.cells.append(given.get("scope"))
        if tag[0] == "h" and tag[1:].isdigit():
            self.headings.append(int(tag[1:]))
        if tag not in VOID:
            self.open.append((tag, given.get("role")))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        if not any(tag in ("style", "script") for tag, _ in self.open):
            self.said.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.said).split())
