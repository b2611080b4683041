"""look: attention, saliency, gates, gradients and nearest neighbours of a model."""
