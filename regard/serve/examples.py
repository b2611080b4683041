"""Examples of responses, for the OpenAPI schema."""

from __future__ import annotations

LISTED = {
    "name": "demo",
    "task": "translation",
    "model": "rnnsearch",
    "state": "finished",
    "step": 4000,
    "score": "loss 0.21",
    "megabytes": 9.5,
    "loaded": True,
}
RUNS = {"runs": [LISTED]}
RUN = {
    **LISTED,
    "title": "rnnsearch",
    "precision": "fp32",
    "parameters": 2_300_000,
    "reads": "text",
    "can": ["write", "look", "gates", "embed", "score"],
    "decoding": {"beam": 5, "n_best": 1},
    "sides": ["source", "target"],
}
INPUTS = {"examples": ["They are watching ."]}
ANSWER = {
    "text": "Ils regardent .",
    "score": -0.31,
    "tokens": ["Ils", "regardent", "."],
    "alternatives": [],
    "cut": False,
}
PREDICTED = {
    "run": "demo",
    "task": "translation",
    "model": "rnnsearch",
    "precision": "fp32",
    "predictions": [ANSWER],
}
SCORED = {"run": "demo", "log_probs": [-0.31]}
SEEN = {"title": "They are watching .", "output": "Ils regardent .", "note": "", "views": []}
CHOSEN = {"id": 17, "token": "Ils", "probability": 0.93}
STEPS = {
    "run": "demo",
    "source": ["They", "are", "watching", ".", "<eos>"],
    "steps": [
        {
            "previous": "<bos>",
            "chosen": CHOSEN,
            "likely": [CHOSEN],
            "attention": [0.9, 0.05, 0.03, 0.01, 0.01],
            "forced": False,
        }
    ],
}
TRAINING = {
    **LISTED,
    "charts": [{"title": "Loss", "svg": "<svg></svg>"}],
    "last": {"step": 4000},
    "samples": "step 4000",
}
FLOW = {
    "run": "demo",
    "summary": "Gradients reach 20 tokens back.",
    "charts": [{"title": "Gradient norms", "svg": "<svg></svg>"}],
}
