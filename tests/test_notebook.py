"""docs/python.md as a notebook, in a real kernel: progress is displayed, and so are attention maps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "python.md"


@pytest.mark.slow
def test_the_python_page_is_a_notebook_that_shows_progress_and_attention(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(block) for block in blocks])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    training, use = notebook.cells[0].outputs, notebook.cells[1].outputs
    assert "validation" in str(training) and "text/html" in str(training)
    assert "srcdoc" in str(use[-1]["data"]["text/html"])  # the last line's attention map, in a frame of its own
