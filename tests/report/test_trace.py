"""From a sentence to the updates that learned from it, compared with the tokens that were delivered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.calling import call

from lading import NumpyLoader, PackedRows, build_tokens, open_checkpoint, open_run
from lading.errors import ConfigError, SourceError
from lading.ledger import Ledger
from lading.order.packing.rules import PackingRules
from lading.source.tokens.trace_index import index_tokens

PLANTED = "the grey heron counted seven brass keys"
ITEM = {"question": "which harbour lies north of the salt mill", "answer": "Ankerwyk"}


class Home:
    """A corpus with a planted document and a planted benchmark item, and a run of 60 updates of two steps over it."""

    def __init__(self, path: Path) -> None:
        rng = np.random.default_rng(4)
        words = ["stone", "river", "lamp", "green", "winter", "paper", "bridge", "seven", "north", "mill"]
        texts = [" ".join(rng.choice(words, rng.integers(4, 8))) for _ in range(240)]
        texts[17] = f"river lamp {PLANTED} winter"
        texts[90] = f"{ITEM['question']} ? {ITEM['answer']}"
        (path / "web.jsonl").write_text(
            "\n".join(json.dumps({"text": t, "url": f"u/{n}"}) for n, t in enumerate(texts))
        )
        self.path, self.store = path, build_tokens(path / "web.jsonl", path / "web", id="url")
        loader = NumpyLoader(
            {"web": PackedRows(self.store, PackingRules(64, "best_fit", "split"))}, batch_size=4, seed=1
        )
        loader.tracker = ledger = Ledger(path / "run", loader.plan)
        self.delivered: list[tuple[int, np.ndarray]] = []
        self.saved: list[Path] = []
        for _ in range(2):
            for batch, bill in loader.with_bills():
                ledger.commit(bill, update=bill.step // 2, loss=1.0)
                self.delivered.append((bill.step // 2, batch["targets"].copy()))
                if bill.step in (9, 39):
                    self.saved.append(path / f"checkpoint-{bill.step}")
                    self.saved[-1].mkdir()
                    (self.saved[-1] / "weights").write_bytes(b"w")
                    ledger.checkpoint(self.saved[-1], loader.state_dict())
        ledger.close()

    def updates(self, text: str) -> list[int]:
        """The update of every delivered row whose tokens hold a text."""
        wanted = text.encode()
        rows = ((u, bytes(row[row < 256].astype(np.uint8))) for u, batch in self.delivered for row in batch)
        return [update for update, row in rows if wanted in row]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Made once: the tests only ask."""
    made = Home(tmp_path_factory.mktemp("trace"))
    index_tokens(made.store.path)
    return made


def test_a_planted_sentence_is_found_with_its_updates(home):
    """The document by its number and id, and every update that was given its tokens."""
    found = open_run(home.path / "run").trace(PLANTED)

    (span,) = found.spans
    (place,) = span.places
    assert (span.text, place.dataset, place.document, place.id) == (PLANTED, "web", 17, "u/17")
    assert [use["update"] for use in place.uses] == home.updates(PLANTED) != []


def test_what_is_traced_was_delivered_as_often_as_it_says(home):
    """Law: for any words of the corpus, the uses of all places are the rows that held them."""
    run, rng = open_run(home.path / "run"), np.random.default_rng(0)
    for document in rng.integers(0, len(home.store), 12).tolist():
        tokens = home.store[document]
        start = int(rng.integers(0, len(tokens) - 6))
        ids = tokens[start : start + 6].tolist()
        pieces = [PackedRows(home.store, PackingRules(64, "best_fit", "split")).rows_of_document(document)]

        found = run.trace(ids=ids, least=6, limit=1000)

        assert all(len(piece) == 1 for piece in pieces)  # no text is cut in two, so a scan of rows sees all
        uses = {(u["step"], u["slot"], p.document, p.start) for p in found.spans[0].places for u in p.uses}
        count = 0
        for _, batch in home.delivered:
            for row in batch:
                whole = np.lib.stride_tricks.sliding_window_view(row, 6)
                count += int((whole == ids).all(1).sum())
        assert len(uses) == count


def test_a_checkpoint_says_before_or_later(home):
    """What the model had seen when it was saved, and what its run used after that."""
    updates = home.updates(PLANTED)
    for path, steps in zip(home.saved, (10, 40), strict=True):
        checkpoint = open_checkpoint(path, runs=[home.path])
        place = checkpoint.trace(PLANTED).spans[0].places[0]
        before = [update for update in updates if update < steps // 2]
        assert [use["update"] for use in place.uses] == before
        assert place.later == len(updates) - len(before)
        assert place.what.startswith("used") or not before


def test_a_planted_item_is_found_with_its_answer_and_absent_ones_are_not(home, tmp_path, capsys):
    """20 items that are not there: no false alarm. The text that was found is shown."""
    absent = [
        {"question": f"what did the {n} old clockmaker of Lindow sell to strangers", "answer": "x"} for n in range(20)
    ]
    (tmp_path / "bench.jsonl").write_text("\n".join(map(json.dumps, [*absent, ITEM])))
    asked = ["contaminated", home.path / "run", tmp_path / "bench.jsonl", "--field", "question", "--answer", "answer"]

    code, out, _ = call(capsys, *asked, "--n", 25, "--json")
    _, text, _ = call(capsys, *asked, "--n", 25)
    clean, _, _ = call(capsys, *asked, "--n", 60)

    found = json.loads(out)
    (item,) = found["found"]
    assert (code, found["items"], found["used"], item["line"], item["share"], item["with_answer"]) == (
        1,
        21,
        1,
        21,
        1.0,
        True,
    )
    assert item["places"][0]["document"] == 90
    assert [use["update"] for use in item["places"][0]["uses"]] == home.updates(ITEM["question"])
    assert ITEM["question"] in " ".join(text.split())
    assert clean == 1  # shorter than 60 tokens: looked for as a whole


def test_the_command_answers_people_and_programs(home, capsys, tmp_path):
    """A text, a file, ids; exit code 1 where nothing of it is in the corpus."""
    (tmp_path / "asked.txt").write_text(PLANTED)
    run = home.path / "run"
    code, out, _ = call(capsys, "trace", run, PLANTED)
    _, from_file, _ = call(capsys, "trace", run, "--file", tmp_path / "asked.txt", "--json")
    _, from_ids, _ = call(capsys, "trace", run, "--ids", " ".join(map(str, PLANTED.encode())), "--json")
    absent, nothing, _ = call(capsys, "trace", run, "zzzzqqqqxxxx")

    assert code == 0
    assert PLANTED in " ".join(out.split())
    assert "used 2 times" in " ".join(out.split())
    assert json.loads(from_file) == json.loads(from_ids)
    assert absent == 1
    assert "nothing of its 12 tokens is in the corpus" in nothing


def test_wrong_questions_are_refused_in_words(home, tmp_path):
    """No text, ids outside the vocabulary, no index, no store, a benchmark without the field."""
    run = open_run(home.path / "run")
    with pytest.raises(ConfigError, match="what is to be traced"):
        run.trace("")
    with pytest.raises(ConfigError, match="expected integers from 0 to 256"):
        run.trace(ids=[1, 999])
    with pytest.raises(ConfigError, match="it is not the one that made its tokens"):
        run.trace("text", tokenizer=type("Other", (), {"vocab_size": 3, "eod_token_id": 2, "encode": list})())
    (tmp_path / "bench.jsonl").write_text('{"q": "a"}\n')
    with pytest.raises(ConfigError, match="line 1: question"):
        run.contaminated(tmp_path / "bench.jsonl", "question")
    loader = NumpyLoader({"plain": np.arange(8)}, batch_size=2)
    loader.tracker = ledger = Ledger(tmp_path / "run", loader.plan)
    next(iter(loader))
    ledger.close()
    with pytest.raises(ConfigError, match="'plain' lies in no token store"):
        open_run(tmp_path / "run").trace("text")
    (tmp_path / "t.txt").write_text("some text")
    store = build_tokens(tmp_path / "t.txt", tmp_path / "bare")
    loader = NumpyLoader({"bare": PackedRows(store, 16)}, batch_size=1)
    loader.tracker = ledger = Ledger(tmp_path / "bare-run", loader.plan)
    next(iter(loader))
    ledger.close()
    with pytest.raises(SourceError, match="lading tokens index"):
        open_run(tmp_path / "bare-run").trace("text")


def test_a_sentence_in_the_search_box_leads_to_the_document(home):
    """The pages trace what is typed; a run without an index says why it cannot."""
    from lading.kits.web.pages.search import hits_in

    (hit,) = hits_in(open_run(home.path / "run"), "run", PLANTED)

    assert (hit["kind"], hit["place"]) == ("trace", "document/0/17")
    assert "used 2 times" in hit["text"]


def test_ids_are_traced_without_the_tokenizer(tmp_path):
    """It may be a function of one's own that nobody finds here: the text is then numbers, and a text is refused."""
    from lading.source.tokens.tokenizer import FunctionTokenizer
    from lading.source.tokens.write import TokenWriter

    with TokenWriter(tmp_path / "store", FunctionTokenizer(list, 50, 49, "mine")) as writer:
        for first in range(6):
            writer.add(np.arange(first, first + 12))
    index_tokens(tmp_path / "store")
    loader = NumpyLoader({"web": PackedRows(tmp_path / "store", 16)}, batch_size=2)
    loader.tracker = ledger = Ledger(tmp_path / "run", loader.plan)
    for _, bill in loader.with_bills():
        ledger.commit(bill, loss=1.0)
    ledger.close()

    (span,) = open_run(tmp_path / "run").trace(ids=range(2, 12)).spans

    assert (span.text, [place.document for place in span.places]) == ("2 3 4 5 6 7 8 9 10 11", [0, 1, 2])
    with pytest.raises(ConfigError, match="Pass --tokenizer"):
        open_run(tmp_path / "run").trace("a text")
