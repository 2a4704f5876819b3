"""The residual stream: what enters and leaves the stack, norms, what blocks add, and which blocks run."""
