// Settings of the C library's allocator for processes that move tensors over gRPC.
#pragma once

namespace lodestar {

// Keeps freed receive buffers in the process instead of giving them back to the kernel: otherwise
// every re-use faults its pages in again, which costs about half the throughput of a stream. One
// arena for all threads: with more, each keeps receive buffers that another one could use.
// Called once at the top of main(), before any thread. Does nothing outside glibc.
void SetUpMalloc();

}  // namespace lodestar
