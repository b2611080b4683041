"""show: terminal, SVG and HTML. It draws numbers and words and computes nothing else."""
