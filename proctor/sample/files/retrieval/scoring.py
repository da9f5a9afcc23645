"""Says how well documents answer a query."""

import math
from collections import Counter

from retrieval.words import words_of


def score_documents(documents, query, settings):
    """Return (score, id) of each document, in the documents' order."""
    texts = [words_of(document["text"]) for document in documents]
    titles = [set(words_of(document["title"])) for document in documents]
    wanted = sorted(set(words_of(query)))
    rarity = {word: _rarity(word, texts, titles) for word in wanted}
    return [
        (_score(wanted, text, title, rarity, settings), document["id"])
        for document, text, title in zip(documents, texts, titles, strict=True)
    ]


def _rarity(word, texts, titles):
    having = sum(word in text or word in title for text, title in zip(texts, titles, strict=True))
    return math.log((1 + len(texts)) / (1 + having))


def _score(wanted, text, title, rarity, settings):
    counts = Counter(text)
    found = sum(
        rarity[word] * (counts[word] + settings.title_weight * (word in title)) for word in wanted
    )
    return found / (1.0 + settings.length_penalty * len(text))
