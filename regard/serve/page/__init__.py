"""The files of the page: HTML, ES modules and style sheets, those of `show/` among them.

`app.js` is the entry; each view is a module. Drawing code is that of `show/`, which the pages of `look --html` use
too. What Python and the page both need (colours, labels) is one more module, `palette.js`, written here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from fastapi import Request, Response

from regard.look.gates import WORDS
from regard.show.attention_page import ATTENTION
from regard.show.caption_page import spotlight
from regard.show.colours import theme_scales
from regard.show.line_chart import CHART_STYLE
from regard.show.markup import policy_hash
from regard.show.sound_page import sound_colours

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; "
    f"style-src 'self' {policy_hash(CHART_STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Asset:
    content: bytes
    kind: str

    async def response(self, request: Request) -> Response:
        tag = f'"{sha256(self.content).hexdigest()[:32]}"'
        headers = {"etag": tag, "cache-control": "no-cache", "content-security-policy": POLICY}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.kind, headers=headers)


def assets() -> dict[str, Asset]:
    """Return every file by the path at which it is served; no request can name another."""
    found = {}
    for package, where in (("regard.serve.page", "/page/"), ("regard.show", "/show/")):
        for file in files(package).iterdir():
            ending = file.name.rpartition(".")[2]
            if ending in KINDS and (ending != "html" or where == "/page/"):
                found[where + file.name] = Asset(file.read_bytes(), KINDS[ending])
    found["/"] = found.pop("/page/index.html")
    found["/page/palette.js"] = Asset(palette().encode(), KINDS["js"])
    return found


def palette() -> str:
    """Return the module with the colours of weights and the labels of maps."""
    colours = {"SCALES": theme_scales(), "SPOTLIGHT": spotlight(), "SOUND": sound_colours()}
    constants = {**colours, "WORDS": ATTENTION, "GATE_WORDS": WORDS}
    return "".join(f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items())
