"""Documents behind the samples of a run: named in steps, found by their names, counted in exports."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.calling import call
from tests.report.runs import record

from lading import Loader, PackedRows, TokenStore, build_tokens
from lading.ledger import Ledger
from lading.order import Plan
from lading.order.packing.rules import PackingRules
from lading.report import open_run

RULES = PackingRules(24, "best_fit", "split")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run over packed rows of a store and over documents of another, with what every step really held."""
    urls = [f"https://example.org/{n % 37}" for n in range(40)]  # three are there twice
    texts = [f"{n} " + "word " * (n % 11) for n in range(40)]
    rows = [{"text": text, "url": url} for text, url in zip(texts, urls, strict=True)]
    (tmp_path / "web.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.table({"text": texts[:9]}), tmp_path / "books.parquet")
    web = build_tokens(tmp_path / "web.jsonl", tmp_path / "web", id="url")
    books = build_tokens(tmp_path / "books.parquet", tmp_path / "books")
    for name, source in {"packed": PackedRows(web, RULES), "plain": books}.items():
        loader = Loader({name: source}, batch_size=3, seed=1, collate_fn=None if name == "packed" else list)
        loader.tracker = ledger = Ledger(tmp_path / "runs" / name, loader.plan)
        seen = []
        for _ in range(2):
            for batch, bill in loader.with_bills():
                ledger.commit(bill, update=bill.step // 2, loss=1.0)
                whose = batch["document_idx"] if name == "packed" else bill.idx[:, None] + 1
                seen.append([sorted({int(d) - 1 for d in row} - {-1}) for row in whose])
        ledger.close()
        (tmp_path / f"{name}.json").write_text(json.dumps(seen))
    return tmp_path


def held(home: Path, name: str) -> list[list[list[int]]]:
    """The documents of each row of each step, as the model received them."""
    return json.loads((home / f"{name}.json").read_text())


def test_a_step_names_the_documents_of_its_rows(home, capsys):
    """What the model received, by name; in Python, for people, for programs and on a page."""
    run, store = open_run(home / "runs" / "packed"), TokenStore(home / "web")

    for number, rows in enumerate(held(home, "packed")):
        found = run.step(number).samples["documents"]
        assert [sorted(d["document"] for d in documents) for documents in found] == rows
        assert all(d["id"] == store.name(d["document"]) for documents in found for d in documents)
    _, out, _ = call(capsys, "step", home / "runs" / "packed", 0, "--json")
    assert json.loads(out)["samples"][0]["documents"][0]["id"].startswith("https://example.org/")
    assert "https://example.org/" in call(capsys, "step", home / "runs" / "packed", 0)[1]
    assert f"{home / 'books.parquet'}#"[-20:] in json.dumps(open_run(home / "runs" / "plain").step(0).to_dict())


def test_where_by_id_is_what_a_scan_finds(home, capsys):
    """Every id, those of two documents and those of none included."""
    store, steps = TokenStore(home / "web"), held(home, "packed")
    for name in {store.name(d) for d in range(len(store))}:
        documents = {d for d in range(len(store)) if store.name(d) == name}
        scan = sorted({s for s, rows in enumerate(steps) for row in rows if documents & set(row)})

        code, out, _ = call(capsys, "where", home / "runs" / "packed", "--id", name, "--json")

        assert code == 0 and sorted({row["step"] for row in json.loads(out)}) == scan
    place = f"{home / 'books.parquet'}#4"
    code, out, _ = call(capsys, "where", home / "runs" / "plain", "plain", "--id", place, "--json")
    assert [row["step"] for row in json.loads(out)] == [s for s, rows in enumerate(held(home, "plain")) if [4] in rows]


def test_what_is_not_known_is_not_called_unused(home, capsys):
    """A name that no store has, a run without names, a store that is gone: exit code 2 and why; a true 0 is a 0."""
    record(home / "runs" / "bare", range(3))
    loader = Loader({"plain": TokenStore(home / "books")}, batch_size=3, collate_fn=list)
    with Ledger(home / "runs" / "part", loader.plan) as ledger:
        ledger.commit(loader.plan.bill(0))
    unused = (set(range(9)) - set(loader.plan.bill(0).idx.tolist())).pop()

    unnamed = [call(capsys, "where", home / "runs" / "bare", "--id", "44", *form) for form in ((), ("--json",))]
    other = call(capsys, "where", home / "runs" / "packed", "--id", "https://example.org/99")
    true_zero = call(capsys, "where", home / "runs" / "part", "--id", f"{home / 'books.parquet'}#{unused}")

    assert all(code == 2 and not out and "unknown whether '44' was used" in why for code, out, why in unnamed)
    assert "dataset 'code' has no names of documents" in unnamed[0][2] and "DATASET and INDEX" in unnamed[0][2]
    assert other[0] == 2 and "'packed' has names of 40 documents, and not this one" in other[2]
    assert true_zero[0] == 1 and "used 0 times" in true_zero[1]


def test_where_says_what_a_sample_is_called(home, capsys):
    """A row by its documents, a document by its id."""
    store = TokenStore(home / "web")

    row = call(capsys, "where", home / "runs" / "packed", "packed", 0)[1]
    document = call(capsys, "where", home / "runs" / "packed", "packed", "--document", 7)[1]

    assert "packed:0 (https://example.org/" in row
    assert f"document 7 of packed ({store.name(7)}): used" in document


def test_a_store_that_is_gone_fails_no_question(home, capsys):
    """Steps and samples are answered; why there are no names is said, with the way out, which works."""
    run = home / "runs" / "packed"
    (home / "web").rename(home / "moved")

    code, out, _ = call(capsys, "step", run, 0, "--json")
    used, uses, said = call(capsys, "where", run, "packed", 0)
    gone, _, why = call(capsys, "where", run, "--id", "https://example.org/3")

    found = json.loads(out)
    assert code == 0 and found["samples"][0]["documents"] is None
    assert "had its packing index at" in found["unnamed"][0] and "--store packed=PATH" in found["unnamed"][0]
    assert used == 0 and "packed:0: used 2 times" in uses and "--store packed=PATH" in said
    assert gone == 2 and "unknown whether" in why and "not available" in why and "--store packed=PATH" in why
    assert call(capsys, "explain", run, 0)[0] == 0
    pointed = f"packed={home / 'moved'}"
    assert call(capsys, "where", run, "--id", "https://example.org/3", "--store", pointed)[0] == 0
    assert "https://example.org" in call(capsys, "step", run, 0, "--store", pointed)[1]
    assert open_run(run, stores={"packed": str(home / "moved")}).step(0).samples["documents"][0]


@pytest.mark.parametrize("damage", ["names", "packing", "tokens", "another"])
def test_a_store_that_is_damaged_or_another_fails_no_question(home, capsys, damage):
    """Each damage is said in a sentence, and the step is answered."""
    run, store = home / "runs" / "packed", home / "web"
    if damage == "names":
        (store / "names-ends.bin").write_bytes(b"\xff" * (store / "names-ends.bin").stat().st_size)
    elif damage == "packing":
        next(store.glob("packing-*/packing.json")).write_text("{")
    elif damage == "tokens":
        (store / "names.json").write_text('{"names_version": 9}')
    else:
        for file in (home / "books").glob("names*"):
            (store / file.name).write_bytes(file.read_bytes())

    code, out, _ = call(capsys, "step", run, 0, "--json")

    assert code == 0 and len(json.loads(out)["unnamed"]) == 1
    assert call(capsys, "step", run, 0)[0] == 0


def test_a_run_that_points_at_nonsense_is_answered(tmp_path, capsys):
    """A location is text from outside: whatever it says, nothing fails."""
    for number, place in enumerate(["/dev/null", "a\0b", "x" * 5000, "/etc/passwd", "packing-" + "f" * 16, "."]):
        plan = Plan.make({"code": 40}, batch_size=4)
        text = plan.to_json().replace('"fingerprint": ""', f'"fingerprint": "", "location": {json.dumps(place)}')
        record(tmp_path / str(number), range(3), plan=Plan.from_json(text))

        code, out, _ = call(capsys, "step", tmp_path / str(number), 1, "--json")

        assert code == 0 and all(row["documents"] is None for row in json.loads(out)["samples"])


def test_a_store_of_no_dataset_is_wrong_use(home, capsys):
    """The datasets there are, and the form, are said."""
    run = home / "runs" / "packed"

    assert "it has packed" in call(capsys, "step", run, 0, "--store", "other=x")[2]
    assert "expected DATASET=PATH" in call(capsys, "step", run, 0, "--store", "packed")[2]


def test_pages_name_documents_and_find_them(home):
    """A step's rows, a row, a document, and a search by its id; what acts in a name is shown, not obeyed."""
    pytest.importorskip("jinja2")
    from lading.kits.web.ui.site import Site

    site = Site({"packed": home / "runs" / "packed"})
    wanted = TokenStore(home / "web").name(5)

    pages = [site.answer(f"/r/packed/{place}", {}) for place in ("step/0", "sample/0/0", "document/0/5")]

    assert all(page.status == 200 and "https://example.org/" in page.body for page in pages)
    assert wanted in pages[2].body
    assert site.answer("/search", {"q": wanted}).location == "/r/packed/document/0/5"
