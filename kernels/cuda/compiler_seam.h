// SPDX-License-Identifier: Apache-2.0

// Functions that depend on the compiler of the kernels: dynamic shared memory, which only nvcc
// declares, and instructions that have no name in CUDA's C++. nvcc uses the functions of this file.
// In tests, the host's compiler uses functions of the same names from the emulator. No other file
// of ours depends on the compiler. For .cu.cc files.
//
// NVIDIA's PTX ISA describes the instructions (9.7.14 "mma.m16n8k16", "ldmatrix"; 9.7.9.25
// "cp.async"). All threads of a warp call MultiplyAdd() and the loads together. With lane = 4 *
// group + member, the registers hold these elements (row, column):
//   A 16x16 bf16  a[0] (group, 2 member + {0,1})      a[1] (group + 8, same columns)
//                 a[2] (group, 2 member + 8 + {0,1})  a[3] (group + 8, 2 member + 8 + {0,1})
//   B 16x8 bf16   b[0] (2 member + {0,1}, group)      b[1] (2 member + 8 + {0,1}, group)
//   C 16x8 f32    c[0], c[1] (group, 2 member + {0,1})   c[2], c[3] (group + 8, same columns)
// A pair {0,1} lies in one register, with element 0 in the lower half.
#pragma once

#ifndef __CUDACC__
#include "kernels/cuda/emulator/compiler_seam.h"
#else

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// Returns the block's dynamic shared memory, 128-byte aligned.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(128) unsigned char lodestar_dynamic_shared[];
  return reinterpret_cast<T*>(lodestar_dynamic_shared);
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Returns x, but hides its value from the compiler. Otherwise the compiler might compute values
// that depend on x before a loop, and keep them in registers that the loop needs.
__device__ __forceinline__ int Opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Returns 2^x with an error of at most 2 ulp. Results below 2^-126 become 0.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Computes c += A B. Needs compute capability 8.0.
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// Loads four 8x8 matrices of 16-bit elements from shared memory.
// - In lane 8 i + j, `row` is the address of row j of matrix i. A row has 16 bytes and is 16-byte
//   aligned.
// - Lane 4 g + m gets elements (g, 2 m) and (g, 2 m + 1) of matrix i in r[i].
// - From LoadMatrixX4Transposed() it gets elements (2 m, g) and (2 m + 1, g) instead.
__device__ __forceinline__ void LoadMatrixX4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ __forceinline__ void LoadMatrixX4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Begins to copy 16 bytes from global to shared memory. Both addresses are 16-byte aligned. If
// `valid` is false, writes zeros and does not read `global`. The bytes may be read after
// CopyAsyncWait() for the copy's group and a barrier. Below compute capability 8.0, copies at once.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  const int source_bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(source_bytes)
               : "memory");
#else
  *static_cast<uint4*>(shared) =
      valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
#endif
}

// Ends a group of copies: those that this thread began since it last called CopyAsyncCommit().
__device__ __forceinline__ void CopyAsyncCommit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

// Waits until the copies of this thread's groups have arrived, except those of the last
// `kGroupsLeft` groups.
template <int kGroupsLeft>
__device__ __forceinline__ void CopyAsyncWait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kGroupsLeft) : "memory");
#endif
}

}  // namespace lodestar::cuda

#endif
