"""How far another package's kernels are from the PyTorch code in whose place transformers runs them.

``python -m probe kernels`` calls both on the arguments that a twin's mixers pass, and keeps what it found in
``site_src/kernels.json``. On a machine without a CUDA device the kernels that are written in Triton run in its
interpreter, and those in CUDA C++ are compiled for the processor with a stand-in for CUDA's runtime: their own code,
but not a GPU's arithmetic. What cannot be compiled so is told as not measured; where its package has the same function
in PyTorch too, that is called, and told as such.
"""
