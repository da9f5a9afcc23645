from retrieval.component import Settings
from retrieval.scoring import score_documents

PLAIN = Settings(length_penalty=0.0, title_weight=2.0)


def test_more_of_the_query_scores_higher():
    documents = [
        {"id": "a", "title": "", "text": "moss"},
        {"id": "b", "title": "", "text": "moss and stone"},
        {"id": "c", "title": "", "text": "sand"},
    ]
    scores = {name: score for score, name in score_documents(documents, "moss stone", PLAIN)}
    assert scores["b"] > scores["a"] > scores["c"] == 0.0
