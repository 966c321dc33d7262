"""The ``lading`` command: a verb's file is opened when the verb is used.

    lading show RUN        lading step RUN 48213        lading where RUN code 93412        lading verify RUN

Exit codes: 0 it holds or nothing is wrong, 1 it does not hold, 2 wrong use. Every verb has ``--json``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

# The verb, its file (of a kit's verb in its folder), and what it does in one line. The file holds a function of the
# verb's name, or ``app`` for a group of verbs.
VERBS = {
    "ls": ("lading.cli.look", "The runs of a folder: state, steps, loss, digest."),
    "show": ("lading.cli.ask", "What a run is and how far it got."),
    "step": ("lading.cli.ask", "What was in a step, and what became of it."),
    "where": ("lading.cli.ask", "Every step that used a sample."),
    "mix": ("lading.cli.ask", "What the model got of each dataset, against the plan."),
    "verify": ("lading.cli.ask", "Whether the record is what the plan says, sample for sample."),
    "diff": ("lading.cli.ask", "Whether two runs hold the same, and if not, from which step on."),
    "explain": ("lading.cli.ask", "Everything around a step: samples, shares, exposures, losses."),
    "spikes": ("lading.cli.look", "The steps whose loss stands far above those before them."),
    "rollouts": ("lading.cli.rollouts", "What became of the rollouts that training made of its prompts."),
    "bias": ("lading.cli.rollouts", "Whether rollouts were dropped whatever they were."),
    "bad": ("lading.cli.look", "The samples that could not be used, and where."),
    "export": ("lading.cli.look", "Write history, samples or the mix to a file."),
    "block": ("lading.cli.ask", "Use samples no more, from the next attempt on."),
    "compact": ("lading.cli.look", "Make Parquet of what dead attempts left, and few files of many."),
    "seal": ("lading.cli.look", "Let the run's log commit to what was recorded."),
    "sql": ("lading.cli.ask", "Ask DuckDB over batches, history and samples."),
    "trace": ("lading.cli.trace", "Which documents hold a text, and which updates used them."),
    "contaminated": ("lading.cli.trace", "Which items of a benchmark the corpus holds, and when they were used."),
    "forget": ("lading.cli.forget", "Let a run train again without samples or documents it had."),
    "model": ("lading.cli.model", "What a checkpoint learned from, over all its generations."),
    "key": ("lading.cli.key", "Make keys that sign claims about models."),
    "check-proof": ("lading.cli.proof", "Whether a proof shows that a model learned from a sample, or did not."),
    "publish": ("lading.cli.publish", "Put a run, a token store or a checkpoint under an address."),
    "fetch": ("lading.cli.publish", "Get what was published, and check it."),
    "plan": ("lading.cli.plan", "What a run would draw from each dataset, before anything runs."),
    "audit": ("lading.cli.audit", "Watch a short run of a loader and say what is wrong with it."),
    "report": ("lading.kits.web.verbs", "Write one page that tells the whole run."),
    "ui": ("lading.kits.web.verbs", "Look at runs in a browser, also while they train."),
    "tokens": ("lading.cli.tokens", "Build, pack, index, show and check corpora of tokens."),
    "jasper": ("lading.kits.jasper.verbs", "Build, describe and check JASPER directories."),
    "train": ("lading.kits.chunked.verbs", "Train what a configuration describes."),
    "demo": ("lading.cli.demo.command", "Train on real text, crash, resume, and ask what was in it."),
}
_EXAMPLES = {
    "model": "lading model show checkpoints/600 --runs runs",
    "key": "lading key new ~/lading.key",
    "tokens": "lading tokens build text/*.txt --out corpus",
    "jasper": "lading jasper info data/jasper",
}
_COMPUTING = {"plan", "audit", "tokens", "jasper", "train", "demo"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if _verb(given) not in _COMPUTING:  # a question multiplies no matrices: NumPy need not start a thread per core
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from lading.errors import CorruptLedgerError, LadingError  # here, so that importing this package costs nothing

    try:
        _app(given)(given, prog_name="lading")
    except LadingError as error:
        _say(str(error))
        sys.exit(1 if isinstance(error, CorruptLedgerError) else 2)  # a damaged run is no wrong use
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has had enough
        sys.exit(0)
    except OSError as error:  # of the disk: full, not ours, not there
        if not isinstance(error.filename, str):
            raise
        _say(f"{error.filename}: {error.strerror}. Give a place that is there, that is yours, and that has room.")
        sys.exit(2)


def _say(text: str) -> None:
    from lading.runtime.shown import shown

    print(f"lading: {shown(' '.join(text.split()))}", file=sys.stderr)


def _verb(given: Sequence[str]) -> str | None:
    return next((word for word in given if not word.startswith("-")), None)


def _app(given: Sequence[str]):  # type: ignore[no-untyped-def]
    """Return the application, with the one verb that is asked for; the others only have a name."""
    import typer  # here, for the same reason

    app = typer.Typer(
        name="lading",
        help="What was in a batch, where a sample was used, what a model was really trained on.",
        add_completion=True,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(invoke_without_command=True)
    def version(
        show_version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit."),
    ) -> None:
        if show_version:
            from lading import __version__
            from lading.runtime import compiled

            typer.echo(f"lading {__version__}, {'compiled' if compiled.enabled() else 'plain: no compiled kernels'}")
            raise typer.Exit

    wanted = _verb(given or os.environ.get("_TYPER_COMPLETE_ARGS", "").split()[1:])  # the shell completes a line
    for verb, (file, text) in VERBS.items():
        if verb == wanted:
            module = importlib.import_module(file)
            group = getattr(module, "app", None)
            if group is not None:
                app.add_typer(group, name=verb, help=f"{text}\n\nExample: {_EXAMPLES[verb]}")
            else:
                app.command(verb)(getattr(module, verb.replace("-", "_")))
        else:
            app.command(verb, help=text)(lambda: None)
    return app
