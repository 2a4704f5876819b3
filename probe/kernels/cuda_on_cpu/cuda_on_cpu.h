// CUDA C++ on a processor: a stand-in for the part of CUDA's runtime and of CUB that kernels of other packages use, so
// that their own code runs on a machine without a CUDA device.
//
// The blocks of a grid run one after the other. A thread of a block is a context of its own on the same operating
// system's thread: each runs until it comes to a barrier or ends, then the next one does. So a run gives the same
// numbers each time. The arithmetic is the processor's: what a GPU rounds otherwise, or has fast approximations for,
// is not shown, and no fault of timing is.
//
// `translate.py` rewrites what no C++ compiler takes: the launch `f<<<…>>>(…)`, and shared memory whose size the launch
// gives. Anything else that is not here does not compile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // blocks do not run side by side

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float2 { float x, y; };
struct float3 { float x, y, z; };
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

using cudaStream_t = void *;
enum cudaError_t { cudaSuccess };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, int) { return cudaSuccess; }

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

// How many kernels were launched so far.
extern "C" { inline __attribute__((used, visibility("default"))) long cuda_on_cpu_launches = 0; }

namespace cuda_on_cpu {

constexpr std::size_t STACK = 1 << 18;  // bytes of one thread's

struct Thread {
    ucontext_t context;
    dim3 index;
    bool ended = false;
    std::unique_ptr<char[]> stack{new char[STACK]};
};

struct Block {
    ucontext_t scheduler;
    std::vector<std::unique_ptr<Thread>> threads;  // kept for the next launch
    Thread *current = nullptr;
    void (*body)(void *) = nullptr;
    void *of_body = nullptr;
    std::exception_ptr error;
    std::vector<std::max_align_t> shared;
};

inline Block block;

// A context's entry: what it throws is thrown where the kernel was launched.
inline void enter() {
    try {
        block.body(block.of_body);
    } catch (...) {
        if (!block.error) block.error = std::current_exception();
    }
    block.current->ended = true;
    swapcontext(&block.current->context, &block.scheduler);
}

inline void wait() { swapcontext(&block.current->context, &block.scheduler); }

inline unsigned rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// The array that a kernel declares with `extern __shared__ T name[]`.
template <typename T>
auto dynamic_shared() -> T (&)[] { return *reinterpret_cast<T (*)[]>(block.shared.data()); }

inline void run_block(std::size_t bytes) {
    const std::size_t count = std::size_t(blockDim.x) * blockDim.y * blockDim.z;
    block.shared.resize(bytes / sizeof(std::max_align_t) + 1);
    std::memset(block.shared.data(), 0xff, block.shared.size() * sizeof(std::max_align_t));  // not a number, if read
    while (block.threads.size() < count) block.threads.emplace_back(new Thread);
    for (std::size_t i = 0; i < count; ++i) {
        Thread &thread = *block.threads[i];
        thread.index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
        thread.ended = false;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK;
        thread.context.uc_link = nullptr;
        makecontext(&thread.context, enter, 0);
    }
    for (bool some = true; some && !block.error;) {  // each round ends at a barrier
        some = false;
        for (std::size_t i = 0; i < count && !block.error; ++i) {
            Thread &thread = *block.threads[i];
            if (thread.ended) continue;
            block.current = &thread;
            threadIdx = thread.index;
            swapcontext(&block.scheduler, &thread.context);
            some = some || !thread.ended;
        }
    }
}

// What stands for `kernel<<<grid, threads, bytes, stream>>>`; call it with the kernel's arguments.
template <typename Kernel>
auto launch(Kernel kernel, dim3 grid, dim3 threads, std::size_t bytes = 0, cudaStream_t = nullptr) {
    return [=](auto... arguments) {
        auto body = [&] { kernel(arguments...); };
        block.body = [](void *of) { (*static_cast<decltype(body) *>(of))(); };
        block.of_body = &body;
        block.error = nullptr;
        gridDim = grid;
        blockDim = threads;
        for (unsigned z = 0; z < grid.z; ++z)
            for (unsigned y = 0; y < grid.y; ++y)
                for (unsigned x = 0; x < grid.x; ++x) {
                    blockIdx = dim3(x, y, z);
                    run_block(bytes);
                    if (block.error) std::rethrow_exception(block.error);
                }
        ++cuda_on_cpu_launches;
    };
}

}  // namespace cuda_on_cpu

inline void __syncthreads() { cuda_on_cpu::wait(); }

namespace cub {

enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_WARP_TRANSPOSE };
enum BlockStoreAlgorithm { BLOCK_STORE_DIRECT, BLOCK_STORE_WARP_TRANSPOSE };
enum BlockScanAlgorithm { BLOCK_SCAN_WARP_SCANS };

// Threads take neighbouring items in their order; an algorithm is only a way to fetch them.
template <typename T, int THREADS, int ITEMS, BlockLoadAlgorithm = BLOCK_LOAD_DIRECT>
struct BlockLoad {
    struct alignas(16) TempStorage { char unused[16]; };
    explicit BlockLoad(TempStorage &) {}

    void Load(const T *from, T (&items)[ITEMS]) { Load(from, items, THREADS * ITEMS); }

    // Items from `valid` on stay as they are.
    void Load(const T *from, T (&items)[ITEMS], int valid) {
        const int first = cuda_on_cpu::rank() * ITEMS;
        for (int i = 0; i < ITEMS && first + i < valid; ++i) items[i] = from[first + i];
    }

    template <typename Default>
    void Load(const T *from, T (&items)[ITEMS], int valid, Default otherwise) {
        for (T &item : items) item = otherwise;
        Load(from, items, valid);
    }
};

template <typename T, int THREADS, int ITEMS, BlockStoreAlgorithm = BLOCK_STORE_DIRECT>
struct BlockStore {
    struct alignas(16) TempStorage { char unused[16]; };
    explicit BlockStore(TempStorage &) {}

    void Store(T *to, const T (&items)[ITEMS]) { Store(to, items, THREADS * ITEMS); }

    void Store(T *to, const T (&items)[ITEMS], int valid) {
        const int first = cuda_on_cpu::rank() * ITEMS;
        for (int i = 0; i < ITEMS && first + i < valid; ++i) to[first + i] = items[i];
    }
};

// Each thread's items in their order; the threads of a warp by doubled distances; then the warps in their order.
template <typename T, int THREADS, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS>
class BlockScan {
public:
    struct alignas(16) TempStorage { T totals[2][THREADS]; T prefix; };
    explicit BlockScan(TempStorage &storage) : held(storage) {}

    // `prefix(total)` is called by the first warp; what it gives to the first thread comes before all items.
    template <int ITEMS, typename Operator, typename Prefix>
    void InclusiveScan(const T (&items)[ITEMS], T (&out)[ITEMS], Operator op, Prefix &prefix) {
        T total = items[0];
        for (int i = 1; i < ITEMS; ++i) total = op(total, items[i]);
        const T before = exclusive(total, op, prefix);
        T running = before;
        for (int i = 0; i < ITEMS; ++i) out[i] = running = op(running, items[i]);
    }

private:
    static constexpr int WARP = 32;
    TempStorage &held;

    template <typename Operator, typename Prefix>
    T exclusive(T own, Operator op, Prefix &prefix) {
        const int at = cuda_on_cpu::rank(), lane = at % WARP;
        int side = 0;
        held.totals[side][at] = own;
        __syncthreads();
        for (int distance = 1; distance < WARP; distance *= 2, side = 1 - side) {
            const T(&now)[THREADS] = held.totals[side];
            held.totals[1 - side][at] = lane >= distance ? op(now[at - distance], now[at]) : now[at];
            __syncthreads();
        }
        const T(&sums)[THREADS] = held.totals[side];
        T warps = sums[std::min(WARP, THREADS) - 1], all = warps;  // the warps before this thread's; the whole block
        for (int last = 2 * WARP - 1; last < THREADS; last += WARP) {
            if (last < at - lane) warps = op(warps, sums[last]);
            all = op(all, sums[last]);
        }
        if (at < WARP) {
            const T seed = prefix(all);
            if (at == 0) held.prefix = seed;
        }
        __syncthreads();
        T before = held.prefix;
        if (at >= WARP) before = op(before, lane ? op(warps, sums[at - 1]) : warps);
        else if (lane) before = op(before, sums[at - 1]);
        __syncthreads();  // the storage may be used again
        return before;
    }
};

}  // namespace cub
