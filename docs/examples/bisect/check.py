"""An oracle: exit status 0 if the sample still chooses the document that has the word."""

from retrieval.component import choose

sea, river = ({"id": text, "title": "", "text": text} for text in ("sea", "river"))
raise SystemExit(choose([sea, river], "river", cap=1) != ["river"])
