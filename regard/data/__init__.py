"""Text in, batches out: lines, then tokens, then padded tensors."""
