"""The ``lading`` command: a verb's file is opened when the verb is used.

    lading show RUN        lading step RUN 48213        lading where RUN code 93412        lading verify RUN

Exit codes: 0 it holds or nothing is wrong, 1 it does not hold, 2 wrong use. Every verb has ``--json``.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence

# Four groups of verbs, at most eight in each: the verb, its file (of a kit's verb in its folder), and what it does in a
# line. The file holds a function of the verb's name, or ``app`` for a group of verbs.
GROUPS = {
    "Ask a run": {
        "show": ("lading.cli.ask", "What a run is and how far it got; its spikes, its bad samples."),
        "step": ("lading.cli.ask", "What was in a step, and what became of it."),
        "where": ("lading.cli.ask", "Every step that used a sample or a document."),
        "explain": ("lading.cli.ask", "Everything around a step: samples, shares, exposures, losses."),
        "mix": ("lading.cli.ask", "What the model got of each dataset, against the plan."),
        "verify": ("lading.cli.ask", "Whether the record is what the plan says, sample for sample."),
        "diff": ("lading.cli.ask", "Whether two runs hold the same, and if not, from which step on."),
        "rollouts": ("lading.cli.rollouts", "What became of the rollouts that training made of its prompts."),
    },
    "Answer for a model": {
        "model": ("lading.cli.model", "What a checkpoint learned from, over all its generations."),
        "trace": ("lading.cli.trace", "Which documents hold a text, and which updates used them."),
        "contaminated": ("lading.cli.trace", "Which items of a benchmark the corpus holds, and when they were used."),
        "forget": ("lading.cli.forget", "Let a run train again without samples or documents it had."),
        "key": ("lading.cli.key", "Make keys that sign claims about models."),
        "check-proof": ("lading.cli.proof", "Whether a proof shows that a model learned from a sample, or did not."),
        "publish": ("lading.cli.publish", "Put a run, a token store or a checkpoint under an address."),
        "fetch": ("lading.cli.publish", "Get what was published, and check it."),
    },
    "Prepare and read data": {
        "audit": ("lading.kits.audit.verbs", "Watch a short run of a loader and say what is wrong with it."),
        "plan": ("lading.cli.plan", "What a run would draw from each dataset, before anything runs."),
        "block": ("lading.cli.ask", "Use samples no more, from the next attempt on."),
        "export": ("lading.cli.look", "Write history, samples or the mix to a file."),
        "sql": ("lading.cli.ask", "Ask DuckDB over batches, history and samples."),
        "tokens": ("lading.cli.tokens", "Build, pack, index, show and check corpora of tokens."),
        "jasper": ("lading.kits.jasper.verbs", "Build, describe and check JASPER directories."),
    },
    "Run and look": {
        "demo": ("lading.kits.demo.verbs", "Train on real text, crash, find a planted fault, block it, resume."),
        "ls": ("lading.cli.look", "The runs of a folder, the newest first: state, steps, loss, digest."),
        "ui": ("lading.kits.web.verbs", "Look at runs in a browser, also while they train."),
        "report": ("lading.kits.web.verbs", "Write one page that tells the whole run."),
        "train": ("lading.kits.chunked.verbs", "Train what a configuration describes."),
        "compact": ("lading.cli.look", "Make Parquet of what dead attempts left, and few files of many."),
        "seal": ("lading.cli.look", "Let the run's log commit to what was recorded."),
    },
}
# Words that became options; they still answer, and `--help` does not list them.
FORMER = {
    "spikes": ("lading.cli.look", "As `show RUN --spikes`, with its window and threshold."),
    "bad": ("lading.cli.look", "As `show RUN --bad`."),
    "bias": ("lading.cli.rollouts", "As `rollouts RUN --bias`."),
}
VERBS = {verb: named for group in (*GROUPS.values(), FORMER) for verb, named in group.items()}
_EXAMPLES = {
    "model": "lading model show checkpoints/600 --runs runs",
    "key": "lading key new ~/lading.key",
    "tokens": "lading tokens build text/*.txt --out corpus",
    "jasper": "lading jasper info data/jasper",
}
_COMPUTING = {"plan", "audit", "tokens", "jasper", "train", "demo"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    asked = words or os.environ.get("_TYPER_COMPLETE_ARGS", "").split()[1:]  # the shell completes a line
    verb = next((word for word in asked if not word.startswith("-")), None)
    given = _from_the_end(words, verb)
    if verb not in _COMPUTING:  # a question multiplies no matrices: NumPy need not start a thread per core
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from lading.errors import CorruptLedgerError, LadingError  # here, so that importing this package costs nothing
    from lading.runtime.imports import uncollected

    try:
        with uncollected():
            app = _app(verb)
        if arguments is None:  # a process of our own: its collector need not look through what stays to the end
            gc.freeze()
        app(given, prog_name="lading")
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
    from lading.runtime.fields import shown

    print(f"lading: {shown(' '.join(text.split()))}", file=sys.stderr)


def _from_the_end(given: Sequence[str], verb: str | None) -> list[str]:
    """Return the words with steps like -1 written so that they are not taken for options."""
    if verb not in ("step", "explain") or "--" in given:
        return list(given)
    return [f"last{word}" if word[:1] == "-" and word[1:].isdecimal() else word for word in given]


def _app(verb: str | None):  # type: ignore[no-untyped-def]
    """Return the application, with the one verb that is asked for; the others only have a name."""
    import typer  # here, for the same reason
    import typer.core

    class Grouped(typer.core.TyperGroup):
        """Lists the verbs by what people want."""

        def format_commands(self, ctx, formatter) -> None:  # type: ignore[no-untyped-def]
            known = {verb for verbs in (*GROUPS.values(), FORMER) for verb in verbs}
            added = {verb: named for verb, named in VERBS.items() if verb not in known}  # by whoever extends it
            for title, verbs in {**GROUPS, **({"Added": added} if added else {})}.items():
                with formatter.section(title):
                    formatter.write_dl([(verb, text) for verb, (_, text) in verbs.items()])

    app = typer.Typer(
        name="lading",
        cls=Grouped,
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

    _add_verbs(app, verb)
    return app


def _add_verbs(app, wanted) -> None:  # type: ignore[no-untyped-def]
    for verb, (file, text) in VERBS.items():
        if verb == wanted:
            module = importlib.import_module(file)
            group = getattr(module, "app", None)
            if group is not None:
                app.add_typer(group, name=verb, help=f"{text}\n\nExample: {_EXAMPLES[verb]}")
            else:
                app.command(verb, hidden=verb in FORMER)(getattr(module, verb.replace("-", "_")))
        else:
            app.command(verb, help=text, hidden=verb in FORMER)(lambda: None)
