"""CUDA C++ on a processor: kernels of our own, compiled as a package's are; and how a package's parts are built."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from probe.errors import ProbeError
from probe.kernels import command, compiled
from probe.kernels.cuda_on_cpu import FOLDER
from probe.kernels.cuda_on_cpu.translate import translated
from tests.conftest import ROOT

KERNEL = """
#include <cub/block/block_scan.cuh>

struct Recurrence {  // y = a·y + b: the order of its operands matters
    __device__ float2 operator()(const float2 &first, const float2 &then) const {
        return make_float2(then.x * first.x, then.x * first.y + then.y);
    }
};

struct Before {
    float2 state;
    __device__ float2 operator()(float2 all) {
        const float2 old = state;
        state = Recurrence()(state, all);
        return old;
    }
};

template <int THREADS, int ITEMS>
__global__ void recur(const float *a, const float *b, float *y, int length) {
    using Load = cub::BlockLoad<float, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<float, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using Scan = cub::BlockScan<float2, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    extern __shared__ char memory[];
    auto &load = reinterpret_cast<typename Load::TempStorage &>(memory);
    auto &store = reinterpret_cast<typename Store::TempStorage &>(memory);
    auto &scan = reinterpret_cast<typename Scan::TempStorage &>(memory);
    const int row = blockIdx.x * length;
    Before before{make_float2(1.f, 0.f)};
    for (int chunk = 0; chunk < length; chunk += THREADS * ITEMS) {
        float as[ITEMS], bs[ITEMS];
        float2 pairs[ITEMS];
        Load(load).Load(a + row + chunk, as, length - chunk, 1.f);
        __syncthreads();
        Load(load).Load(b + row + chunk, bs, length - chunk, 0.f);
        for (int i = 0; i < ITEMS; ++i) pairs[i] = make_float2(as[i], bs[i]);
        __syncthreads();
        Scan(scan).InclusiveScan(pairs, pairs, Recurrence(), before);
        for (int i = 0; i < ITEMS; ++i) bs[i] = pairs[i].y;
        __syncthreads();
        Store(store).Store(y + row + chunk, bs, length - chunk);
    }
}

__global__ void turn(const float *x, float *y, int width, int height) {
    __shared__ float tile[4][8];
    const int column = threadIdx.x, line = threadIdx.y;
    if (column >= width || line >= height) return;
    const int at = (blockIdx.y * height + line) * width + column;
    tile[line][column] = x[at];
    __syncthreads();
    y[at] = tile[height - 1 - line][width - 1 - column];
}

extern "C" int run(int threads, const float *a, const float *b, float *y, int rows, int length) {
    const int bytes = 1 << 14;
    if (threads == 16) recur<16, 4><<<rows, 16, bytes>>>(a, b, y, length);
    else if (threads == 32) recur<32, 1><<<rows, 32, bytes>>>(a, b, y, length);
    else recur<96, 2><<<dim3(rows), 96, bytes, nullptr>>>(a, b, y, length);
    return 0;
}

extern "C" void turned(const float *x, float *y, int width, int height, int blocks) {
    auto kernel = &turn;
    kernel<<<dim3(1, blocks), dim3(8, 4)>>>(x, y, width, height);
}

__global__ void refuse(int which) {
    __syncthreads();
    if (threadIdx.x == which) throw std::runtime_error("refused");
    __syncthreads();
}

extern "C" int refused(int which) {
    try {
        refuse<<<1, 4>>>(which);
    } catch (const std::runtime_error &) {
        return 1;
    }
    return 0;
}
"""

needs_compiler = pytest.mark.skipif(
    shutil.which("c++") is None or sys.platform != "linux",
    reason="there is no C++ compiler (c++), or not Linux, without which nothing measures kernels",
)
numbers = count()


def build(source: str, folder: Path) -> ctypes.CDLL:
    number = next(numbers)
    (folder / f"{number}.cpp").write_text(translated(source))
    library = folder / f"{number}.so"
    command = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-include", str(FOLDER / "cuda_on_cpu.h")]
    subprocess.run([*command, "-o", str(library), str(folder / f"{number}.cpp")], check=True)
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return build(KERNEL, tmp_path_factory.mktemp("kernel"))


def floats(tensor: torch.Tensor) -> ctypes.c_void_p:
    assert tensor.is_contiguous() and tensor.dtype == torch.float32
    return ctypes.c_void_p(tensor.data_ptr())


def error_of(library: ctypes.CDLL, threads: int, length: int) -> float:
    """How far the kernel's recurrence is from one that is computed step by step in double precision."""
    torch.manual_seed(length)
    a, b = torch.rand(3, length), torch.randn(3, length)
    y = torch.full_like(b, float("nan"))
    library.run(threads, floats(a), floats(b), floats(y), 3, length)
    state, right = torch.zeros(3, dtype=torch.float64), []
    for step in range(length):
        state = a[:, step].double() * state + b[:, step].double()
        right.append(state)
    apart = (torch.stack(right, 1) - y.double()).abs().max()
    return float("inf") if apart.isnan() else float(apart)


@needs_compiler
@pytest.mark.parametrize("threads", [16, 32, 96])
@pytest.mark.parametrize("length", [1, 31, 192, 500])
def test_a_kernel_scans_its_rows(library: ctypes.CDLL, threads: int, length: int) -> None:
    before = ctypes.c_long.in_dll(library, "cuda_on_cpu_launches").value
    assert error_of(library, threads, length) < 1e-5
    assert ctypes.c_long.in_dll(library, "cuda_on_cpu_launches").value == before + 1


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("then.x * first.y + then.y", "first.x * then.y + first.y"),  # operands in the other order
        ("then.x * first.y + then.y", "then.x * first.y - then.y"),
        ("before{make_float2(1.f, 0.f)}", "before{make_float2(1.f, 0.5f)}"),
    ],
)
def test_a_kernel_with_another_operator_is_far_off(right: str, wrong: str, tmp_path: Path) -> None:
    assert right in KERNEL
    assert error_of(build(KERNEL.replace(right, wrong), tmp_path), 96, 500) > 0.1


@needs_compiler
def test_threads_wait_for_each_other_at_a_barrier_and_those_that_ended_are_not_waited_for(
    library: ctypes.CDLL, tmp_path: Path
) -> None:
    x = torch.randn(5, 3, 7)

    def turned(by: ctypes.CDLL) -> torch.Tensor:
        y = torch.empty_like(x)
        by.turned(floats(x), floats(y), 7, 3, 5)
        return y

    assert turned(library).equal(x.flip(1, 2))
    without = build(re.sub(r"__syncthreads\(\);\s+y\[at\]", "y[at]", KERNEL), tmp_path)
    assert not turned(without).equal(x.flip(1, 2))


@needs_compiler
def test_what_a_thread_throws_is_thrown_at_the_launch(library: ctypes.CDLL) -> None:
    assert [library.refused(which) for which in (2, 7, 3)] == [1, 0, 1]


@pytest.mark.parametrize(
    "source", ["extern __shared__ __align__(16) char memory[];", "(*kernel)<<<1, 2>>>(x);", "a<<<b;"]
)
def test_syntax_of_cuda_that_is_not_known_is_refused_with_its_line(source: str) -> None:
    with pytest.raises(ValueError, match="line 2 has"):
        translated(f"\n{source}\n")


SETUP = """
from torch.utils.cpp_extension import CUDAExtension
modules = [
    CUDAExtension(name="other_cuda", sources=["other.cu"]),
    CUDAExtension(name="planted_cuda", sources=["src/bind.cpp", "src/twice.cu", "src/twice_bwd.cu"], args=[1 + x]),
]
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The unpacked sources of a package with a compiled part, and a compiler that makes it without PyTorch."""
    package = tmp_path / "sources" / "planted-1"
    (package / "src").mkdir(parents=True)
    (package / "setup.py").write_text(SETUP)
    (package / "src" / "bind.cpp").write_text("void twice_bwd_cuda(int);\n")
    (package / "src" / "twice.cu").write_text('extern "C" void twice() { kernel<<<1, 2>>>(); }\n')
    (package / "src" / "twice_bwd.cu").write_text("not C++\n")
    monkeypatch.setenv("PROBE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    compiled.part.cache_clear()
    yield tmp_path / "sources"
    compiled.part.cache_clear()


@needs_compiler
def test_a_part_is_built_from_the_files_that_its_setup_lists_without_those_of_the_backward(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, files: list[str], **options: Any) -> ModuleType:
        assert [Path(file).name for file in files] == ["bind.cpp", "twice.cu.cpp"]
        assert "throw" in Path(files[0]).read_text() and "launch(kernel, 1, 2)()" in Path(files[1]).read_text()
        assert "for_torch.h" in options["extra_cflags"][-1] and not options["with_cuda"]
        made = ModuleType(name)
        build(KERNEL, tmp_path)
        made.__file__ = str(max(tmp_path.glob("*.so")))
        return made

    monkeypatch.setattr(compiled.cpp_extension, "load", load)
    part = compiled.part("planted_cuda", sources)
    library = ctypes.CDLL(part.module.__file__)
    before = part.launches()
    library.refused(7)
    assert part.launches() == before + 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("Error building\n a.cpp:3:1: error: 'x' was not declared\nmore"),
            "(error: 'x' was not declared)",
        ),
        (OSError("no space is left\nmore"), "(no space is left)"),
    ],
)
def test_a_part_that_does_not_compile_says_the_first_error(
    sources: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def load(*_: Any, **__: Any) -> ModuleType:
        raise error

    monkeypatch.setattr(compiled.cpp_extension, "load", load)
    with pytest.raises(compiled.CannotCompile) as raised:
        compiled.part("planted_cuda", sources)
    assert str(raised.value) == f"its source could not be compiled {said}"


def test_a_part_is_not_compiled_without_its_source_or_beside_a_device(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(compiled.CannotCompile, match="its source was not there"):
        compiled.part("unknown_cuda", sources)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(compiled.CannotCompile, match="only the package's own build"):
        compiled.part("planted_cuda", sources)


def test_what_compiles_is_looked_for_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    with pytest.raises(ProbeError, match="apt install g[+][+]"):
        command._require_compiler()
    monkeypatch.setenv("CXX", "sh")
    monkeypatch.setattr(command.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(ProbeError, match="apt install python3-dev"):
        command._require_compiler()
    (tmp_path / "Python.h").touch()
    command._require_compiler()


def test_a_machine_of_the_tests_has_a_compiler() -> None:
    assert "install -y -qq g++" in (ROOT / ".ci" / "run").read_text()
