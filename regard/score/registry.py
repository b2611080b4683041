"""Every metric by its key, for whoever reads logs and JSON."""

from __future__ import annotations

from regard.score.captions import CAPTION_METRICS, POINTING
from regard.score.error_rates import RECOGNITION_METRICS, TIMING
from regard.score.metrics import (
    ALIGNMENT_ERROR,
    ANSWER_METRICS,
    LABEL_METRICS,
    LOSS,
    NUMBER_METRICS,
    PERPLEXITY,
    TAG_METRICS,
    TOP_5,
    TRANSLATION_METRICS,
)

# a log does not record whether its F1 is of labels or of tags: the name here fits both
METRICS = {
    metric.key: metric
    for metric in (
        LOSS,
        PERPLEXITY,
        *TRANSLATION_METRICS,
        *CAPTION_METRICS,
        *LABEL_METRICS,
        TOP_5,
        *TAG_METRICS,
        *NUMBER_METRICS,
        *ANSWER_METRICS,
        ALIGNMENT_ERROR,
        POINTING,
        *RECOGNITION_METRICS,
        TIMING,
    )
}
