"""Laws of words: plain modern English and the field's standard terms, which docs/glossary.md defines and links."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE, DOCS = ROOT / "regard", ROOT / "docs"

# the rooms whose words are checked
ROOMS = ["layers", "models", "look", "show", "score", "predict", "exchange", "data", "new", "check", "tasks"]
ROOMS += ["cli", "train", "compare", "serve"]
FILES = ["interface.py", "run.py", "recipe.py", "config.py", "checkpoint.py", "machine.py", "usercode.py"]
FILES += ["runs.py", "loading.py", "__init__.py"]
WORLD = PACKAGE / "data" / "world"  # the built-in grammar, in which "said" and "whom" are vocabulary
GENERATED = {DOCS / "settings.md"}  # from the comments of all rooms

# what was written, as a regular expression, and what to write instead
ARCHAIC = {
    r"said|saith": "reported, predicted, written",
    r"told|(?<!attend and )tells?": "given, reported, shown",  # but for the title of Xu 2015
    r"felt|feels?": "reached, measured",
    r"hear|hears": "is called with, reads",
    r"strangers?": "user-defined",
    r"mend|mends|mended|mending": "fix",
    r"anew": "again, new",
    r"begun": "started",
    r"thus|hence|thence|whence|wherein|therein|thereof|whilst|amongst|unto": "so, from, in, while, among",
    r"whom": "which",
    r"seldom": "rarely",
    r"aloud": "as a stream, listed",
    r"what names": "name the thing itself",
    r"one's own|a person's own": "user-defined, your own",
    r"both ways": "bidirectional",
    r"(?:go|goes|going|went|gone) on": "resume, continue",
    r"draws? (?:from|among)|drawn (?:from|by lot)|another draw": "sample",
    r"looks? at once": "heads",
    r"to be had|is had|of no account|be kept in mind|for ever": "use the plain verb",
    r"(?-i:Of)": "begin the sentence with its subject",
}


def readable_parts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and strings of a Python file with their line, or the lines of any other file."""
    if path.suffix != ".py":
        yield from enumerate(path.read_text().splitlines(), start=1)
        return
    words = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in words:
            yield token.start[0], token.string


def archaic_forms(paths: list[Path]) -> list[str]:
    found = []
    for path in paths:
        for line, text in readable_parts(path):
            for form, instead in ARCHAIC.items():
                for match in re.finditer(rf"(?i)(?<![\w-])(?:{form})(?![\w-])", text):
                    where = line + text.count("\n", 0, match.start())
                    found.append(f"{path.relative_to(ROOT)}:{where}: {match[0]!r}, better: {instead}")
    return found


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted({*DOCS.glob("*.md")} - GENERATED)]


def package_files() -> list[Path]:
    inside = (file for room in ROOMS for end in ("py", "html", "js") for file in (PACKAGE / room).rglob(f"*.{end}"))
    return [*(PACKAGE / name for name in FILES), *sorted({*inside} - {*WORLD.rglob("*.py")})]


def test_the_package_has_no_archaic_forms() -> None:
    assert archaic_forms(package_files()) == []


def test_the_docs_have_no_archaic_forms() -> None:
    assert archaic_forms(pages()) == []


@pytest.mark.parametrize("text", ["# what was told", '"""Of tags: one per line."""', 'f"{x} goes on"', "# one's own"])
def test_archaic_forms_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "some.py").write_text(f"told = 1\n{text}\n")
    (found,) = archaic_forms([tmp_path / "some.py"])
    assert found.startswith("some.py:2: ")


# The glossary

GLOSSARY = (DOCS / "glossary.md").read_text()
STANDARD = """beam search; greedy decoding; top-p (nucleus) sampling; kv cache; length penalty; teacher forcing;
early stopping; gradient clipping; fine-tuning; checkpoint; class weights; confusion matrix; saliency; bidirectional;
attention; confidence interval; perplexity; learning-rate schedule"""
LINES = [line for line in GLOSSARY.splitlines() if line.startswith("- **")]


def test_the_glossary_has_the_standard_terms() -> None:
    terms = " ".join(re.findall(r"\*\*(.+?)\*\*", GLOSSARY)).lower()
    for term in " ".join(STANDARD.split()).split("; "):
        assert term in terms, term


@pytest.mark.parametrize("line", LINES, ids=[line[4:].partition("**")[0] for line in LINES])
def test_a_term_of_the_glossary_is_linked_to_a_file_that_exists(line: str) -> None:
    links = re.findall(r"\]\((.+?)\)", line)
    assert links and all((DOCS / link).is_file() for link in links), line


def test_the_terms_of_the_glossary_are_used() -> None:
    used = [*PACKAGE.rglob("*.py"), *(page for page in pages() if page.name != "glossary.md")]
    text = " ".join(" ".join(path.read_text().lower().split()) for path in used)
    terms = re.findall(r"\*\*(.+?)\*\*", GLOSSARY.lower())
    short = {term: re.sub(r" \(.*?\)", "", term) for term in terms}  # without its abbreviation
    missing = [term for term in terms if term not in text and any(part not in text for part in short[term].split(", "))]
    assert missing == []


# Help

VERBS = {"check", "compare", "export", "import", "list", "look", "make", "predict", "print", "score", "show", "train"}
VERBS |= {"serve", "translate", "write"}


@pytest.fixture(scope="module")
def commands() -> Any:
    import typer

    from regard.cli.shell import app

    return typer.main.get_group(app).commands


def test_the_first_line_of_every_commands_help_begins_with_a_verb(commands: Any) -> None:
    firsts = {name: (command.help or "").strip().partition("\n")[0] for name, command in commands.items()}
    wrong = [name for name, first in firsts.items() if first.partition(" ")[0].strip(",.:").lower() not in VERBS]
    assert firsts and wrong == []


def test_the_help_of_options_has_no_archaic_forms(commands: Any) -> None:
    """A comment becomes a sentence there: "of sampling" would begin it with "Of"."""
    helps = [(name, each.help) for name, command in commands.items() for each in command.params if each.help]
    forms = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(ARCHAIC)})(?![\w-])")
    assert len(helps) > 50 and [(name, text) for name, text in helps if forms.search(text)] == []
