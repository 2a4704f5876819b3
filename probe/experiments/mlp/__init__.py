"""MLPs and mixtures: activations, neurons, routers, and how experts' weights are stored."""
