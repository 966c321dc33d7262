"""Learn to find the body of a docstring from its first line, with hard negatives and a steering curriculum.

python examples/jasper.py [DIR]     or     torchrun --nproc-per-node=2 examples/jasper.py [DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cosine_similarity, cross_entropy

from jasper_texts import docstrings
from lading import build_jasper_dataset, create_loader, set_epoch, validate_first_batch
from lading.kits.jasper.build.sklearn import TfidfEmbedding

EPOCHS, DIM, LAUNCHED = 8, 64, dist.is_torchelastic_launched()


def build(path: Path) -> None:
    """Embed Python's own docstrings by TF-IDF and SVD; steering helps at first and is withdrawn epoch by epoch."""
    pairs, curriculum = docstrings(), {"zero_prob_start": 0.2, "zero_prob_end": 0.8, "epochs_total": EPOCHS}
    embed = TfidfEmbedding([text for pair in pairs for text in (pair["question"], pair["source"])], DIM)
    build_jasper_dataset(path, pairs, embed=embed, curriculum=curriculum)


def scores(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Similarity of the prediction to the true source (column 0) and to the negatives."""
    predicted = model(torch.cat([batch["question_emb"], batch["steering"]], dim=1))
    candidates = torch.cat([batch["target_source_emb"][:, None], batch["negative_embs"]], dim=1)
    return cosine_similarity(predicted[:, None], candidates, dim=2)


@torch.no_grad()
def accuracy(model: torch.nn.Module, path: Path) -> float:
    """Share of validation questions whose true source wins, without steering; every sample counts exactly once."""
    loader, counts = create_loader(path, "val", 64, distributed=LAUNCHED), torch.zeros(2)
    loader.dataset_obj.force_steering("zero")
    for batch, bill in loader.with_bills():
        won = (scores(model, batch).argmax(dim=1) == 0)[torch.from_numpy(bill.is_real)]
        counts += torch.tensor([won.sum(), len(won)])
    if LAUNCHED:
        dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def main(path: Path) -> None:
    """Build once, train, print what was learned."""
    if LAUNCHED:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if LAUNCHED else 0
    if rank == 0 and not path.exists():
        build(path)
    if LAUNCHED:
        dist.barrier()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2 * DIM, 256), torch.nn.GELU(), torch.nn.Linear(256, DIM))
    model = torch.nn.parallel.DistributedDataParallel(model) if LAUNCHED else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = create_loader(path, "train", 32 if LAUNCHED else 64, distributed=LAUNCHED)
    validate_first_batch(loader)
    before = accuracy(model, path)
    for epoch in range(EPOCHS):
        set_epoch(loader, epoch)
        for batch in loader:
            loss = cross_entropy(scores(model, batch) / 0.1, torch.zeros(len(batch["idx"]), dtype=torch.int64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"rank {rank}: {EPOCHS} epochs of {len(loader)} steps, accuracy {before:.3f} -> {accuracy(model, path):.3f}")
    if LAUNCHED:
        dist.barrier()  # gloo may abort a process that leaves while another still talks
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path((*sys.argv, "jasper-example")[1]))
