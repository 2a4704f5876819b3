"""What attentions do: projections, scores, who sees whom, heads, and what is read of them again."""
