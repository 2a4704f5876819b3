// What CUDA extensions of PyTorch take from it beside CUDA's own names, for tensors on
// the processor. Included before each of a package's files in place of the headers of CUDA and CUB.
#pragma once

#include <torch/extension.h>

#include "cuda_on_cpu.h"

#define C10_CUDA_CHECK(call) (void)(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK()

struct half2 { at::Half x, y; };
inline float2 __half22float2(half2 both) { return {float(both.x), float(both.y)}; }

namespace at::cuda {
struct CUDAGuard { explicit CUDAGuard(at::Device) {} };
struct CUDAStream { cudaStream_t stream() const { return nullptr; } };
inline CUDAStream getCurrentCUDAStream() { return {}; }
}  // namespace at::cuda
